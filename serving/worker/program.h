#ifndef FOVEA_SERVING_WORKER_PROGRAM_H
#define FOVEA_SERVING_WORKER_PROGRAM_H

/* WORKER PROGRAM: the common part of fovea-prefill and fovea-decode: the daemon, the engine, the
 * registration in the fleet, and the order of shutdown.
 *
 *     fv_daemon_open -> kind->open -> listen -> first probe: join the routers
 *     SIGTERM or a router's order: kind->drain -> (kind->idle) -> leave the routers -> kind->close
 *
 * Loop thread. */
#include "model/engine.h"
#include "serving/worker/registration.h"
#include "transport/peer_option.h"

/* Option rows: a worker's table begins with FV_WORKER_OPTIONS and ends with FV_WORKER_DEVICE_OPTIONS. */
/* clang-format off */
#define FV_WORKER_OPTIONS                                                                          \
    FV_DAEMON_OPTIONS,                                                                             \
    FV_DAEMON_WORKER_OPTIONS,                                                                      \
    {"checkpoint", "FOVEA_CHECKPOINT", FV_OPTION_STRING, "DIR", NULL,                              \
     "Hugging Face checkpoint directory, or GGUF file of a text model", 0, 0},                                                   \
    {"model-name", "FOVEA_MODEL_NAME", FV_OPTION_STRING, "NAME", NULL,                             \
     "the model's name in requests; default: the checkpoint's directory", 0, 0},                   \
    {"chat", "FOVEA_CHAT", FV_OPTION_STRING, "NAME", NULL,                                          \
     "chat template: vicuna, llava, chatml, mistral, none or FILE.jinja; default: the checkpoint's own", \
     0, 0},                                                                                        \
    FV_REGISTRATION_OPTIONS,                                                                       \
    {"compute", "FOVEA_COMPUTE", FV_OPTION_STRING, "TYPE", "auto",                                 \
     "data type of matrix products: f32 or bf16; the same in the whole fleet; "                    \
     "auto: bf16 for bf16 checkpoints on the CPU, otherwise f32", 0, 0},                           \
    {"weights", "FOVEA_WEIGHTS", FV_OPTION_STRING, "TYPE", NULL,                                   \
     "quantize the text model's linear layers while loading: int8, int4 (groups of 32) or "        \
     "int4-128, with its output head in 8 bits; the same in the whole fleet; default: stored, "     \
     "as in the checkpoint", 0, 0},                                                                \
    {"kv-dtype", "FOVEA_KV_DTYPE", FV_OPTION_STRING, "TYPE", "auto",                               \
     "data type of keys and values: f32, bf16 or f16; the same in the whole fleet; "               \
     "auto: bf16 with --compute bf16, otherwise f32", 0, 0}
#define FV_WORKER_DEVICE_OPTIONS                                                                   \
    {"threads", "FOVEA_THREADS", FV_OPTION_INT, "N", "0",                                          \
     "number of compute threads; 0: all cores", 0, 256},                                          \
    {"device", "FOVEA_DEVICE", FV_OPTION_STRING, "NAME", "auto", "auto, cpu or cuda", 0, 0},       \
    {"gpu", "FOVEA_GPU", FV_OPTION_INT, "N", "0", "index of the GPU, with --device cuda", 0, 1023},\
    {"gpu-trace", "FOVEA_CUDA_TRACE", FV_OPTION_STRING, "FILE", NULL,                              \
     "write GPU time by kernel to FILE on exit; disables CUDA graphs", 0, 0},                      \
    {"plugin-dir", "FOVEA_PLUGIN_DIR", FV_OPTION_STRING, "DIR", NULL,                              \
     "directory containing libfovea_cuda.so; default: the program's directory", 0, 0},             \
    FV_PEER_OPTIONS,                                                                               \
    {"isa", "FOVEA_ISA", FV_OPTION_STRING, "NAME", "auto",                                         \
     "CPU: auto, plain, avx2, avx512, avx512vnni, avx512bf16 or amx, with the same result; CUDA: auto or exact", 0, 0}
/* clang-format on */

typedef struct fv_worker_program fv_worker_program;

enum { FV_WORKER_SERVICES_MAX = 2 };

/* The functions of a kind of worker; `worker` is p->worker, which `open` has set. */
typedef struct fv_worker_kind {
    const char *role; /* in its default name */
    Fovea__Inference__V1__Role fleet_role;
    bool vision;      /* the engine needs the vision tower */
    unsigned metrics; /* FV_DAEMON_PREFILL or FV_DAEMON_DECODE */
    /* Opens the worker into p->worker; the daemon, the engine and `pairs` are open. */
    fv_status (*open)(fv_worker_program *p);
    int32_t (*services)(void *worker, fv_rpc_service out[FV_WORKER_SERVICES_MAX]);
    fv_pulse *(*pulse)(void *worker);
    fv_vital_signs (*signs)(void *worker);
    void (*load)(void *worker, Fovea__Inference__V1__Load *load); /* fills an empty one */
    void (*record)(void *worker); /* sets metrics beyond the load; NULL: there are none */
    /* Sets the worker's own limits, in addition to the checkpoint's. */
    void (*limits)(const fv_options *o, Fovea__Inference__V1__Limits *limits);
    void (*drain)(void *worker); /* NULL: only the routers need to be told */
    bool (*idle)(void *worker);  /* NULL: idle when no call runs */
    void (*close)(void *worker, void (*closed)(void *user), void *user);
} fv_worker_kind;

struct fv_worker_program {
    const fv_worker_kind *kind;
    const fv_options *o;
    fv_registration place;
    fv_daemon *daemon;
    fv_engine engine;
    fv_peer_choice pairs;
    char name[FV_WORKER_NAME_MAX + 1];
    void *worker;   /* NULL: not open */
    fv_arena arena; /* owns the introduction */
};

/* Sends the next report soon: for on_change in a worker's options, with the program as `user`. */
void fv_worker_program_touch(void *program);

/* Runs a worker until its shutdown is complete: for fv_daemon_program.run. */
fv_status fv_worker_run(const fv_options *o, const fv_worker_kind *kind);

#endif
