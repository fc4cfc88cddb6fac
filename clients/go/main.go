// Command ask asks a fovea router a question about images: the answer goes to standard output as it is generated,
// its report to standard error.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "fovea/inference"
)

// Finds a router again after it was replaced, and waits for one that is not there yet (docs/CLIENTS.md).
const serviceConfig = `{
  "loadBalancingConfig": [{"round_robin": {}}],
  "methodConfig": [{"name": [{"service": "fovea.inference.v1.Inference"}], "waitForReady": true}]}`

const attempts = 5

// A list of values of a flag that is given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

// dial connects in plain text, or over TLS with the authorities in the file ca ("system": those of this machine).
func dial(target, ca string) (*grpc.ClientConn, error) {
	transport := grpc.WithInsecure()
	if ca != "" {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if ca != "system" {
			pem, err := os.ReadFile(ca)
			if err != nil {
				return nil, err
			}
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("%s has no certificate", ca)
			}
		}
		transport = grpc.WithTransportCredentials(credentials.NewTLS(config))
	}
	return grpc.Dial(target, transport, grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second}))
}

// parsePolicy reads the text form: "quality", "preset=quality;evict=tova,keep=0.5". Numbers and words are told apart
// as the message wants them; whether the model has the method, the router checks.
func parsePolicy(text string) (*pb.Policy, error) {
	policy := &pb.Policy{}
	for i, part := range strings.Split(text, ";") {
		params := strings.Split(part, ",")
		name, value, ok := strings.Cut(params[0], "=")
		switch {
		case !ok && i == 0 && len(params) == 1:
			policy.Preset = name
			continue
		case !ok:
			return nil, fmt.Errorf("policy: %q is not STAGE=METHOD", params[0])
		case name == "preset" && i == 0 && len(params) == 1:
			policy.Preset = value
			continue
		}
		stage := &pb.StagePolicy{Stage: name, Method: value}
		for _, p := range params[1:] {
			name, value, ok := strings.Cut(p, "=")
			if !ok {
				return nil, fmt.Errorf("policy: %q is not NAME=VALUE", p)
			}
			param := &pb.Param{Name: name}
			if number, err := strconv.ParseFloat(value, 64); err == nil {
				param.Value = number
			} else {
				param.Text = value
			}
			stage.Params = append(stage.Params, param)
		}
		policy.Stages = append(policy.Stages, stage)
	}
	return policy, nil
}

// printer writes what is new of an answer. One that is asked for again repeats its tokens, and its text with them.
type printer struct {
	out     io.Writer
	printed int // bytes
	at      int // bytes of this attempt
}

func (p *printer) take(text string) {
	if end := p.at + len(text); end > p.printed {
		fmt.Fprint(p.out, text[len(text)-(end-p.printed):])
		p.printed = end
	}
	p.at += len(text)
}

// stream asks once. The hint is how long a full fleet wants to be left alone, 0: it said nothing.
func stream(ctx context.Context, client pb.InferenceClient, request *pb.GenerateRequest, p *printer) (*pb.Finished, time.Duration, error) {
	p.at = 0
	call, err := client.Generate(ctx, request)
	if err != nil {
		return nil, 0, err
	}
	var finished *pb.Finished
	for {
		event, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return finished, 0, nil
		}
		if err != nil {
			return nil, pushback(call.Trailer()), err
		}
		switch e := event.Event.(type) {
		case *pb.GenerateEvent_Tokens:
			p.take(e.Tokens.Text)
		case *pb.GenerateEvent_Finished:
			finished = e.Finished
		}
	}
}

func pushback(trailer metadata.MD) time.Duration {
	if v := trailer.Get("grpc-retry-pushback-ms"); len(v) > 0 {
		if ms, err := strconv.Atoi(v[0]); err == nil && ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
	}
	return 0
}

// generate asks again after what may be asked again: a router or worker that was lost, a fleet that is full and says
// for how long.
func generate(ctx context.Context, client pb.InferenceClient, request *pb.GenerateRequest, p *printer) (*pb.Finished, error) {
	for attempt := 1; ; attempt++ {
		finished, wait, err := stream(ctx, client, request, p)
		switch status.Code(err) {
		case codes.Unavailable:
			wait = 200 * time.Millisecond << attempt
		case codes.ResourceExhausted:
			if wait == 0 {
				return nil, err
			}
		default:
			return finished, err
		}
		if attempt == attempts {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%v; again in %v\n", status.Convert(err).Message(), wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func tell(f *pb.Finished) {
	r := f.Report
	policy := r.Policy
	if policy == "" {
		policy = "exact"
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", strings.ToLower(strings.TrimPrefix(f.Reason.String(), "FINISH_REASON_")), policy)
	fmt.Fprintf(os.Stderr, "tokens: %d prompt (%d visual), %d generated\n", r.NPrompt, r.NVisual, r.NGenerated)
	fmt.Fprintf(os.Stderr, "KV: %d bytes exact, %d visual held, %d sent\n", r.BytesRaw, r.BytesVisual, r.GetTransfer().GetBytesSent())
	fmt.Fprintf(os.Stderr, "first token after %.1f ms\n", 1e3*r.SecondsFirstToken)
	for _, note := range r.Notes {
		fmt.Fprintf(os.Stderr, "%s did nothing: %s\n", note.Stage, note.Text)
	}
}

func run() error {
	var images list
	target := flag.String("to", "127.0.0.1:8200", "`HOST:PORT` of a router, or dns:///NAME:PORT of several")
	ca := flag.String("tls-ca", "", "connect over TLS; `FILE` of the router's authorities in PEM, or: system")
	keyFile := flag.String("api-key-file", "", "`FILE` with the API key to show")
	policy := flag.String("policy", "", "compression policy in its `TEXT` form; empty: exact")
	maxTokens := flag.Uint("max-tokens", 128, "generate at most `N` tokens")
	timeout := flag.Duration("timeout", 10*time.Minute, "of the whole answer")
	flag.Var(&images, "image", "`FILE`: JPEG, PNG or WebP; may be given several times")
	flag.Parse()
	if flag.NArg() != 1 {
		return fmt.Errorf("usage: ask [flags] QUESTION; ask -help lists the flags")
	}
	turn := &pb.Turn{Role: "user", Text: flag.Arg(0), NImages: uint32(len(images))}
	request := &pb.GenerateRequest{
		Prompt:    &pb.Prompt{Form: &pb.Prompt_Chat{Chat: &pb.Chat{Turns: []*pb.Turn{turn}}}},
		MaxTokens: uint32(*maxTokens),
	}
	for _, path := range images {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		request.Images = append(request.Images, &pb.Image{Data: data})
	}
	if *policy != "" {
		var err error
		if request.Policy, err = parsePolicy(*policy); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // ends the work on every machine
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if *keyFile != "" {
		key, err := os.ReadFile(*keyFile)
		if err != nil {
			return err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(key)))
	}
	connection, err := dial(*target, *ca)
	if err != nil {
		return err
	}
	defer connection.Close()
	finished, err := generate(ctx, pb.NewInferenceClient(connection), request, &printer{out: os.Stdout})
	if err != nil {
		return err
	}
	fmt.Println()
	if finished == nil {
		return errors.New("the answer ended without a report")
	}
	tell(finished)
	return nil
}

func main() {
	if err := run(); err != nil {
		if s, ok := status.FromError(err); ok {
			err = fmt.Errorf("%v: %s", s.Code(), s.Message())
		}
		fmt.Fprintln(os.Stderr, "ask:", err)
		os.Exit(1)
	}
}
