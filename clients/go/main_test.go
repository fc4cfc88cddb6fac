package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "fovea/inference"
)

func TestPolicy(t *testing.T) {
	for text, want := range map[string]string{
		"quality":                                   "quality",
		"preset=quality;evict=tova,keep=0.5":        "quality evict tova keep:0.5",
		"prune=vtw,layer=16/32;pack=svd,first=held": " prune vtw layer:016/32 pack svd first:0held",
	} {
		p, err := parsePolicy(text)
		if err != nil {
			t.Fatal(err)
		}
		words := []string{p.Preset}
		for _, s := range p.Stages {
			words = append(words, s.Stage, s.Method)
			for _, x := range s.Params {
				words = append(words, fmt.Sprintf("%s:%v%s", x.Name, x.Value, x.Text))
			}
		}
		if got := strings.Join(words, " "); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
	for _, bad := range []string{"quality;evict", "evict=tova,keep", "quality,keep=1"} {
		if _, err := parsePolicy(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// A router that is full, then breaks off, then answers.
type router struct {
	pb.UnimplementedInferenceServer
	asked []time.Time
	full  error
}

func (r *router) Generate(_ *pb.GenerateRequest, call pb.Inference_GenerateServer) error {
	r.asked = append(r.asked, time.Now())
	switch {
	case r.full != nil:
		return r.full
	case len(r.asked) == 1:
		call.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", "120"))
		return status.Error(codes.ResourceExhausted, "full")
	}
	words := []string{"a ", "red ", "ring"}
	for i, text := range words {
		if len(r.asked) == 2 && i == 2 {
			return status.Error(codes.Unavailable, "gone")
		}
		if err := call.Send(&pb.GenerateEvent{Event: &pb.GenerateEvent_Tokens{Tokens: &pb.Tokens{Text: text}}}); err != nil {
			return err
		}
	}
	return call.Send(&pb.GenerateEvent{Event: &pb.GenerateEvent_Finished{Finished: &pb.Finished{Report: &pb.Report{NGenerated: 3}}}})
}

func ask(t *testing.T, r *router) (string, *pb.Finished, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterInferenceServer(server, r)
	go server.Serve(listener)
	defer server.Stop()
	connection, err := dial(listener.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	var out strings.Builder
	finished, err := generate(context.Background(), pb.NewInferenceClient(connection), &pb.GenerateRequest{}, &printer{out: &out})
	return out.String(), finished, err
}

func TestAsksAgainAndPrintsNothingTwice(t *testing.T) {
	r := &router{}
	text, finished, err := ask(t, r)
	if err != nil || text != "a red ring" || finished.GetReport().GetNGenerated() != 3 || len(r.asked) != 3 {
		t.Fatalf("%q after %d attempts: %v", text, len(r.asked), err)
	}
	if waited := r.asked[1].Sub(r.asked[0]); waited < 120*time.Millisecond {
		t.Errorf("it asked again after %v", waited)
	}
}

func TestALimitIsNotAskedAgain(t *testing.T) {
	r := &router{full: status.Error(codes.ResourceExhausted, "over a limit")}
	if _, _, err := ask(t, r); status.Code(err) != codes.ResourceExhausted || len(r.asked) != 1 {
		t.Fatalf("%v after %d attempts", err, len(r.asked))
	}
}
