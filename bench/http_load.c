#include "bench/http_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "bench/program.h"
#include "common/clock.h"
#include "common/grow.h"
#include "gateway/api/base64.h"
#include "tests/support/net.h"

typedef struct crowd crowd;

typedef struct client {
    crowd *crowd;
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    char *request; /* [n_request] headers and body */
    size_t n_request;
    char *got; /* [n_got] answer so far, NUL-terminated */
    size_t n_got, cap_got;
    double begun_s, first_s; /* first_s 0: no text yet */
} client;

struct crowd {
    const char *address;
    const fv_bench_load *load;
    uint64_t *number;
    fv_bench_row *row;
    uv_loop_t loop;
    int32_t n_begun;
    char *image; /* data: URL; NULL: none */
};

/* ---- requests --------------------------------------------------------------------------- */

static char *data_url(const ProtobufCBinaryData *b) {
    static const char head[] = "data:image/png;base64,";
    char *url = malloc(sizeof head + FV_BASE64_SIZE(b->len)), *at = url + sizeof head - 1;
    NET_CHECK(url);
    memcpy(url, head, sizeof head);
    at[fv_base64_write(FV_BASE64, b->data, b->len, at)] = '\0';
    return url;
}

static void print_request(client *c, FILE *to, const char *prompt) {
    const crowd *w = c->crowd;
    fprintf(to,
            "{\"stream\":true,\"cache\":\"off\",\"temperature\":0,\"ignore_eos\":%s,\"max_tokens\":"
            "%d,\"messages\":"
            "[{\"role\":\"user\",\"content\":[",
            w->load->ignore_eos ? "true" : "false", w->load->max_tokens);
    if (w->image) fprintf(to, "{\"type\":\"image_url\",\"image_url\":{\"url\":\"%s\"}},", w->image);
    fprintf(to, "{\"type\":\"text\",\"text\":\"%s\"}]}]}", prompt);
}

static void write_request(client *c) {
    char prompt[4096], *body;
    size_t n_body;
    FILE *f = open_memstream(&body, &n_body);
    fv_bench_prompt(c->crowd->load, (*c->crowd->number)++, prompt);
    print_request(c, f, prompt);
    NET_CHECK(fclose(f) == 0);
    free(c->request);
    f = open_memstream(&c->request, &c->n_request);
    fprintf(
        f, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
        n_body, body);
    NET_CHECK(fclose(f) == 0);
    free(body);
}

static void on_written(uv_write_t *w, int status) {
    (void)w;
    NET_CHECK(status == 0);
}

static void begin(client *c) {
    crowd *w = c->crowd;
    if (w->n_begun == w->load->n_request) {
        uv_close((uv_handle_t *)&c->tcp, NULL);
        return;
    }
    w->n_begun++;
    write_request(c);
    c->n_got = 0;
    c->first_s = 0;
    c->begun_s = fv_clock_s();
    uv_buf_t buf = uv_buf_init(c->request, (unsigned)c->n_request);
    NET_CHECK(uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, on_written) == 0);
}

/* ---- answers ---------------------------------------------------------------------------- */

static bool has_text(const char *got) {
    static const char key[] = "\"content\":\"";
    for (const char *at = got; (at = strstr(at, key)); at += sizeof key - 1)
        if (at[sizeof key - 1] != '"') return true;
    return false;
}

static void on_room(uv_handle_t *h, size_t n, uv_buf_t *out) {
    client *c = h->data;
    (void)n;
    bench_must(fv_grow(&c->got, &c->cap_got, c->n_got + (16 << 10) + 1, 1));
    *out = uv_buf_init(c->got + c->n_got, 16 << 10);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf) {
    client *c = s->data;
    crowd *w = c->crowd;
    (void)buf;
    NET_CHECK(n >= 0);
    c->n_got += (size_t)n;
    c->got[c->n_got] = '\0';
    if (c->first_s == 0 && has_text(c->got)) c->first_s = fv_clock_s();
    if (!strstr(c->got, "data: [DONE]\n\n\r\n0\r\n\r\n")) {
        if (c->n_got > 12 && !strncmp(c->got, "HTTP/1.1 ", 9) && strncmp(c->got + 9, "200", 3))
            bench_must(FV_FAIL(FV_EIO, "%s", c->got));
        return;
    }
    double now = fv_clock_s();
    NET_CHECK(c->first_s > 0);
    bench_must(fv_samples_add(&w->row->ttft_s, c->first_s - c->begun_s));
    bench_must(fv_samples_add(&w->row->e2e_s, now - c->begun_s));
    w->row->n_ok++;
    w->row->n_token += (uint64_t)w->load->max_tokens;
    begin(c);
}

static void on_connected(uv_connect_t *r, int status) {
    client *c = r->data;
    NET_CHECK(status == 0);
    NET_CHECK(uv_read_start((uv_stream_t *)&c->tcp, on_room, on_read) == 0);
    begin(c);
}

void http_load_run(const char *address, const fv_bench_load *load, uint64_t *number,
                   fv_bench_row *row) {
    crowd w = {.address = address, .load = load, .number = number, .row = row};
    client *clients = calloc((size_t)load->concurrency, sizeof *clients);
    char host[64];
    struct sockaddr_in to;
    NET_CHECK(clients && uv_loop_init(&w.loop) == 0 && load->ignore_eos);
    snprintf(host, sizeof host, "%.*s", (int)(strrchr(address, ':') - address), address);
    NET_CHECK(uv_ip4_addr(host, atoi(strrchr(address, ':') + 1), &to) == 0);
    if (load->n_image) w.image = data_url(&load->images[0]->data);
    double begun = fv_clock_s();
    for (int32_t i = 0; i < load->concurrency; i++) {
        client *c = &clients[i];
        c->crowd = &w;
        uv_tcp_init(&w.loop, &c->tcp);
        uv_tcp_nodelay(&c->tcp, 1);
        c->tcp.data = c->connect.data = c;
        NET_CHECK(uv_tcp_connect(&c->connect, &c->tcp, (struct sockaddr *)&to, on_connected) == 0);
    }
    uv_run(&w.loop, UV_RUN_DEFAULT);
    row->seconds += fv_clock_s() - begun;
    for (int32_t i = 0; i < load->concurrency; i++) {
        free(clients[i].request);
        free(clients[i].got);
    }
    net_loop_close(&w.loop);
    free(w.image);
    free(clients);
}
