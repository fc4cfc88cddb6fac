/* `fovea up` as the supervisor of its children. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/answer.h"
#include "tests/support/certs.h"
#include "tests/support/fleet.h"

static fleet f;

static void open_fleet(void) {
    fleet_open(&f, "up");
    fleet_synth(&f, "tiny");
}

static void close_fleet(void) { fleet_close(&f); }

TestSuite(up, .init = open_fleet, .fini = close_fleet, .timeout = 300);

enum { N_CHILD = 3, WAIT_STEPS = 3000, STEP_US = 20000 }; /* a minute */

static int pid_of(const char *program) {
    int pid = 0;
    for (int i = 0; i < WAIT_STEPS && pid == 0; i++) {
        command_run(&fleet_said, "pgrep -P %d -f %s", f.pid, program);
        if (sscanf(fleet_said.out, "%d", &pid) != 1) usleep(STEP_US);
    }
    cr_assert_neq(pid, 0, "no %s runs", program);
    return pid;
}

static void wait_gone(int pid) {
    for (int i = 0; i < WAIT_STEPS && kill(pid, 0) == 0; i++) usleep(STEP_US);
    cr_assert_neq(kill(pid, 0), 0, "process %d still runs", pid);
}

static void wait_said(const char *words) {
    for (int i = 0; i < WAIT_STEPS; i++) {
        command_run(&fleet_said, "cat %s/up.err", f.dir);
        if (strstr(fleet_said.out, words)) return;
        usleep(STEP_US);
    }
    cr_assert(0, "it does not say '%s' but: %s", words, fleet_said.out);
}

Test(up, killed_itself_it_leaves_no_children) {
    static const char *const programs[N_CHILD] = {"fovea-router", "fovea-prefill", "fovea-decode"};
    int pid[N_CHILD];
    fleet_start(&f, "");
    for (int i = 0; i < N_CHILD; i++) pid[i] = pid_of(programs[i]);
    kill(f.pid, SIGKILL);
    f.pid = 0;
    for (int i = 0; i < N_CHILD; i++) wait_gone(pid[i]);
}

Test(up, a_worker_that_dies_again_and_again_is_started_later_each_time) {
    fleet_start(&f, "");
    for (int wait_s = 1; wait_s <= 4; wait_s *= 2) {
        char words[100];
        int pid = pid_of("fovea-decode");
        kill(pid, SIGKILL);
        wait_gone(pid);
        snprintf(words, sizeof words, "action=start-again in_s=%d", wait_s);
        wait_said("child=decode-0 event=ended");
        wait_said("ended by signal 9");
        wait_said(words);
    }
    pid_of("fovea-decode");
    for (int i = 0; i < WAIT_STEPS && fleet_count(&f).n_decode < 1; i++) usleep(STEP_US);
    answer_assert_one_process(f.dir, f.address, "--max-tokens 4 'again'");
    fleet_stop(&f);
}

Test(up, ends_when_its_router_dies_and_says_so) {
    fleet_start(&f, "");
    int decode = pid_of("fovea-decode");
    kill(pid_of("fovea-router"), SIGKILL);
    wait_gone(decode);
    wait_said("router was ended by signal 9");
    f.pid = 0;
}

/* The command line of a child; valid until the next command. */
static const char *line_of(const char *program) {
    int pid = pid_of(program);
    command_run(&fleet_said, "tr '\\0' ' ' </proc/%d/cmdline", pid);
    return fleet_said.out;
}

static bool has_words(const char *line, const char *words) {
    const char *at = strstr(line, words);
    return at && (at[strlen(words)] == ' ' || at[strlen(words)] == '\0');
}

Test(up, passes_on_what_it_was_given_and_only_to_those_who_take_it) {
    fleet_start(
        &f, "--kv-dtype bf16 --kv-bytes 1000000 --threads 1 --chunk 9 --cache-bytes 0 --insecure "
            "--trusted-proxies 10.0.0.0/8 --trusted-proxies 192.168.0.1 --queue 77 "
            "--lease-ms 1234 --attach-ms 2345 --deadline-ms 99999 --silence-ms 4321");
    static const char *const router[] = {
        "--deadline-ms 99999", "--silence-ms 4321", "--insecure=yes", "--queue 77",
        "--trusted-proxies 10.0.0.0/8 --trusted-proxies 192.168.0.1"};
    static const char *const workers[] = {"--kv-dtype bf16", "--kv-bytes 1000000", "--threads 1",
                                          "--queue 77", "--deadline-ms 99999"};
    const char *line = line_of("fovea-router");
    for (size_t i = 0; i < sizeof router / sizeof *router; i++)
        cr_assert(has_words(line, router[i]), "no %s: %s", router[i], line);
    cr_assert_null(strstr(line, "kv-dtype"));
    line = line_of("fovea-prefill");
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++)
        cr_assert(has_words(line, workers[i]), "no %s: %s", workers[i], line);
    cr_assert(has_words(line, "--chunk 9") && has_words(line, "--cache-bytes 0"), "%s", line);
    cr_assert_null(strstr(line, "lease-ms"));
    line = line_of("fovea-decode");
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++)
        cr_assert(has_words(line, workers[i]), "no %s: %s", workers[i], line);
    cr_assert(has_words(line, "--lease-ms 1234") && has_words(line, "--attach-ms 2345"), "%s",
              line);
    cr_assert_null(strstr(line, "chunk"));
    fleet_stop(&f);
}

Test(up, an_option_of_the_gateway_alone_needs_http) {
    command_run(&fleet_said, FOVEA_BIN "/fovea up %s/ck --read-ms 5", f.dir);
    cr_assert_eq(fleet_said.status, 2, "%s", fleet_said.err);
    cr_assert(strstr(fleet_said.err, "--read-ms is an option of fovea-gateway: give --http"), "%s",
              fleet_said.err);
}

Test(up, children_take_the_environment) {
    command_run(&fleet_said,
                "FOVEA_KV_DTYPE=f99 timeout 60 " FOVEA_BIN
                "/fovea up --listen 127.0.0.1:0 --checkpoint %s/ck",
                f.dir);
    cr_assert_neq(fleet_said.status, 0);
    cr_assert(strstr(fleet_said.err, "f99"), "%s", fleet_said.err);
}

/* A worker that is stopped (SIGSTOP) never ends by itself. */
Test(up, a_second_ctrl_c_hastens_however_soon_it_comes) {
    fleet_start(&f, "--grace-ms 120000");
    int decode = pid_of("fovea-decode");
    kill(decode, SIGSTOP);
    kill(f.pid, SIGINT);
    usleep(300000);
    kill(f.pid, SIGINT);
    for (int i = 0; i < 30 * 50 && kill(decode, 0) == 0; i++) usleep(STEP_US);
    cr_assert_neq(kill(decode, 0), 0, "it is still waited for");
    wait_gone(decode);
    f.pid = 0;
}

static void up_fails(const char *args, int status, const char *words) {
    command_run(&fleet_said, "timeout 60 " FOVEA_BIN "/fovea up --checkpoint %s/ck %s", f.dir,
                args);
    cr_assert_eq(fleet_said.status, status, "%s: %d: %s", args, fleet_said.status, fleet_said.err);
    cr_assert(strstr(fleet_said.err, words), "%s: %s", args, fleet_said.err);
    const char *line = strchr(fleet_said.err, '\n');
    cr_assert(line && line[1] == '\0', "%s: it is said once: %s", args, fleet_said.err);
}

Test(up, wrong_usage_is_2_also_where_a_child_finds_it) {
    up_fails("--listen nowhere", 2, "cannot listen on 'nowhere': the port is missing");
    up_fails("--listen 127.0.0.1:70000", 2, "the port must be 0..65535");
    up_fails("--listen 127.0.0.1:0 --kv-dtype q8", 2, "q8");
    up_fails("--listen 127.0.0.1:0 more", 2, "'more' is not an option");
    up_fails("--listen 127.0.0.1:0 --kv-bytes 1000000000000000", 2, "has ");
    up_fails("--listen 127.0.0.1:0 --cache-bytes 1000000000000000", 2, "give less");
    up_fails("--listen 127.0.0.1:0 --served-model-name a --served-model-name a", 2, "given twice");
    up_fails("--listen 127.0.0.1:0 --tenants tenants.json", 2, "--tenants needs --api-key-file");
}

/* The checkpoint as `hf download acme/tiny` leaves it. */
static void make_cache(void) {
    command_run(&fleet_said,
                "cd %s && mkdir -p hf/hub/models--acme--tiny/refs hf/hub/models--acme--tiny/blobs "
                "hf/hub/models--acme--tiny/snapshots/0a1b && cd hf/hub/models--acme--tiny && "
                "printf 0a1b >refs/main && for i in %s/ck/*; do cp $i blobs/${i##*/} && "
                "ln -s ../../blobs/${i##*/} snapshots/0a1b/; done",
                f.dir, f.dir);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
}

Test(up, serves_a_model_of_the_hugging_face_cache_under_its_name_and_others) {
    char address[64];
    make_cache();
    fleet_start(&f, "--http 127.0.0.1:0 --served-model-name acme/tiny --served-model-name gpt-4o");
    fleet_gateway(&f, address);
    command_run(&fleet_said,
                "python3 -c 'import json, sys, urllib.error, urllib.request as u\n"
                "at = \"http://\" + sys.argv[1] + \"/v1/\"\n"
                "get = lambda path, body=None: json.load(u.urlopen(at + path, body))\n"
                "print(*[m[\"id\"] + \"=\" + m[\"root\"] for m in get(\"models\")[\"data\"]])\n"
                "print(get(\"models/gpt-4o\")[\"id\"])\n"
                "ask = lambda m: get(\"completions\", json.dumps({\"model\": m, \"prompt\": "
                "\"a\", \"max_tokens\": 2}).encode())[\"model\"]\n"
                "print(ask(\"gpt-4o\"), ask(\"acme/tiny\"))\n"
                "try: ask(\"other\")\n"
                "except urllib.error.HTTPError as e: print(e.code, "
                "json.load(e)[\"error\"][\"message\"])' %s",
                address);
    cr_assert(strstr(fleet_said.out, "acme/tiny=acme/tiny gpt-4o=acme/tiny\ngpt-4o\n"
                                     "acme/tiny acme/tiny\n404 unknown model 'other'; there are "
                                     "acme/tiny or gpt-4o ("),
              "%s%s", fleet_said.out, fleet_said.err);
    fleet_stop(&f);
    command_run(&fleet_said,
                "cd %s && HF_HOME=$PWD/hf " FOVEA_BIN
                "/fovea ask --checkpoint acme/tiny --max-tokens 2 hello",
                f.dir);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
}

Test(up, takes_org_and_name_and_says_what_is_missing) {
    make_cache();
    command_run(&fleet_said,
                "cd %s && HF_HOME=$PWD/hf timeout 60 " FOVEA_BIN
                "/fovea up acme/tiny --listen 127.0.0.1:0 >out 2>err & pid=$!; "
                "for i in $(seq 600); do grep -qs ready %s/out && break; sleep 0.05; done; "
                "at=$(sed -n 's/^ready on \\([^:]*:[0-9]*\\):.*/\\1/p' %s/out); " FOVEA_BIN
                "/fovea bench --to $at --model acme/tiny --requests 1 --max-tokens 2; echo $?; "
                "kill $pid; wait $pid",
                f.dir, f.dir, f.dir);
    cr_assert(strstr(fleet_said.out, "\n0\n"), "%s%s", fleet_said.out, fleet_said.err);
    command_run(
        &fleet_said,
        "cd %s && rm hf/hub/models--acme--tiny/blobs/tokenizer.json; HF_HOME=$PWD/hf " FOVEA_BIN
        "/fovea up acme/tiny",
        f.dir);
    cr_assert_eq(fleet_said.status, 1);
    cr_assert(strstr(fleet_said.err, "lacks tokenizer.json") &&
                  strstr(fleet_said.err, "`hf download acme/tiny`"),
              "%s", fleet_said.err);
}

Test(up, ctrl_c_is_no_reason_for_warnings) {
    fleet_start(&f, "--decode 2");
    fleet_stop(&f);
    cr_assert_str_eq(fleet_said.out, "");
}

Test(up, a_port_in_use_is_said_to_be) {
    char args[200];
    fleet_start(&f, "");
    snprintf(args, sizeof args, "--listen %s", f.address);
    up_fails(args, 1, "the port is in use; stop what listens there, or choose another");
    cr_assert_null(strstr(fleet_said.err, "grace-over"), "%s", fleet_said.err);
    fleet_stop(&f);
}

Test(up, with_tls_its_gateway_serves_https_and_calls_the_router_over_it) {
    char args[1500], ca[500], address[64];
    certs_authority(f.dir, "ca");
    certs_issue(f.dir, "ca", "fleet",
                "DNS:fovea-router,DNS:fovea-prefill,DNS:fovea-decode,IP:127.0.0.1", 24);
    snprintf(ca, sizeof ca, "%s", certs_path(f.dir, "ca", "crt"));
    f.tls_ca = ca;
    snprintf(args, sizeof args, "--http 127.0.0.1:0 --tls-ca %s --tls-cert %s --tls-key %s", ca,
             certs_path(f.dir, "fleet", "crt"), certs_path(f.dir, "fleet", "key"));
    fleet_start(&f, args);
    fleet_gateway(&f, address);
    command_run(&fleet_said,
                "python3 -c 'import ssl, sys, urllib.request as u\n"
                "body = b\"{\\\"prompt\\\": \\\"a\\\", \\\"max_tokens\\\": 2}\"\n"
                "print(u.urlopen(\"https://\" + sys.argv[1] + \"/v1/completions\", body, "
                "context=ssl.create_default_context(cafile=sys.argv[2])).read())' %s %s",
                address, ca);
    cr_assert(strstr(fleet_said.out, "text_completion"), "%s%s", fleet_said.out, fleet_said.err);
    fleet_stop(&f);
    f.tls_ca = NULL;
}
