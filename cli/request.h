#ifndef FOVEA_CLI_REQUEST_H
#define FOVEA_CLI_REQUEST_H

/* What `ask` and `trace` have in common: the options that describe an engine and a request. */
#include "cli/local.h"
#include "cli/report.h"
#include "common/arena.h"
#include "common/options.h"
#include "inference.pb-c.h"

/* Table rows of what opens an engine in this process, and of its log: they end a command's table.
 */
/* clang-format off */
#define FV_ENGINE_OPTIONS                                                                          \
    {"kv-dtype", "FOVEA_KV_DTYPE", FV_OPTION_STRING, "TYPE", "f32",                                \
     "data type of keys and values: f32, bf16 or f16", 0, 0},                                      \
    {"kv-bytes", "FOVEA_KV_BYTES", FV_OPTION_INT, "N", "0",                                        \
     "size of each KV pool in bytes; 0: unlimited", 0, 9e15},                                      \
    {"chunk", "FOVEA_CHUNK", FV_OPTION_INT, "N", "512",                                            \
     "prefill chunk size in tokens; 0: the whole prompt; affects memory and speed, never the result", 0, 1 << 20},\
    {"threads", "FOVEA_THREADS", FV_OPTION_INT, "N", "0", "number of compute threads; 0: all cores", 0,\
     1024},                                                                                        \
    {"device", "FOVEA_DEVICE", FV_OPTION_STRING, "NAME", "auto", "auto, cpu or cuda", 0, 0},       \
    {"gpu", "FOVEA_GPU", FV_OPTION_INT, "N", "0", "index of the GPU, with --device cuda", 0, 1023},\
    {"gpu-trace", "FOVEA_CUDA_TRACE", FV_OPTION_STRING, "FILE", NULL,                              \
     "write GPU time by kernel to FILE on exit; disables CUDA graphs", 0, 0},                      \
    {"plugin-dir", "FOVEA_PLUGIN_DIR", FV_OPTION_STRING, "DIR", NULL,                              \
     "directory containing libfovea_cuda.so; default: the program's directory", 0, 0},             \
    {"isa", "FOVEA_ISA", FV_OPTION_STRING, "NAME", "auto",                                         \
     "CPU: auto, plain, avx2, avx512 or amx, with the same result; CUDA: auto or exact", 0, 0},         \
    {"log", "FOVEA_LOG", FV_OPTION_STRING, "SPEC", "warn",                                         \
     "error, warn, info, debug; or per part, such as warn,model=debug", 0, 0}
/* clang-format on */

/* Table rows; a command's own table begins with them. */
#define FV_REQUEST_OPTIONS                                                                          \
    {"checkpoint",                                                                                  \
     "FOVEA_CHECKPOINT",                                                                            \
     FV_OPTION_STRING,                                                                              \
     "DIR",                                                                                         \
     NULL,                                                                                          \
     "Hugging Face checkpoint directory",                                                           \
     0,                                                                                             \
     0},                                                                                            \
        {"to",                                                                                      \
         "FOVEA_TO",                                                                                \
         FV_OPTION_STRING,                                                                          \
         "HOST:PORT",                                                                               \
         NULL,                                                                                      \
         "ask the fleet there; checkpoint, kv-dtype, kv-bytes, chunk, threads, device and isa "     \
         "are "                                                                                     \
         "then its own, and answers are greedy unless asked otherwise",                             \
         0,                                                                                         \
         0},                                                                                        \
        {"image", NULL, FV_OPTION_LIST,                                                             \
         "FILE",  NULL, "JPEG, PNG or WebP file; - is standard input; may be repeated",             \
         0,       0},                                                                               \
        {"policy",                                                                                  \
         "FOVEA_POLICY",                                                                            \
         FV_OPTION_STRING,                                                                          \
         "TEXT",                                                                                    \
         "",                                                                                        \
         "compression policy: a preset (quality), or stages "                                       \
         "(prune=vtw,layer=16;select=streaming); empty: exact",                                     \
         0,                                                                                         \
         0},                                                                                        \
        {"max-tokens",                                                                              \
         "FOVEA_MAX_TOKENS",                                                                        \
         FV_OPTION_INT,                                                                             \
         "N",                                                                                       \
         "128",                                                                                     \
         "maximum number of generated tokens",                                                      \
         1,                                                                                         \
         1 << 20},                                                                                  \
        {"raw",                                                                                     \
         NULL,                                                                                      \
         FV_OPTION_FLAG,                                                                            \
         NULL,                                                                                      \
         NULL,                                                                                      \
         "use the text as the whole prompt, with <image> marking images; no chat template",         \
         0,                                                                                         \
         0},                                                                                        \
        {"chat",                                                                                    \
         NULL,                                                                                      \
         FV_OPTION_STRING,                                                                          \
         "NAME",                                                                                    \
         NULL,                                                                                      \
         "chat template: vicuna, llava, chatml, mistral, none; default: the checkpoint's own",      \
         0,                                                                                         \
         0},                                                                                        \
        {"system", NULL, FV_OPTION_STRING, "TEXT", NULL, "system message", 0, 0},                   \
        {"temperature",                                                                             \
         NULL,                                                                                      \
         FV_OPTION_FLOAT,                                                                           \
         "T",                                                                                       \
         NULL,                                                                                      \
         "0 is greedy; default: generation_config.json",                                            \
         0,                                                                                         \
         100},                                                                                      \
        {"top-k", NULL,   FV_OPTION_INT, "K", NULL, "sample from the K most likely tokens; 0: all", \
         0,       1 << 30},                                                                         \
        {"top-p", NULL, FV_OPTION_FLOAT,                                                            \
         "P",     NULL, "sample from the most likely tokens whose probabilities add up to P",       \
         0,       1},                                                                               \
        {"repetition-penalty", NULL, FV_OPTION_FLOAT, "X", NULL, "1 is off", 0, 100},               \
        {"seed", NULL, FV_OPTION_INT, "N", "0", "random seed of sampling", 0, 9e15},                \
        {"logprobs",                                                                                \
         NULL,                                                                                      \
         FV_OPTION_INT,                                                                             \
         "N",                                                                                       \
         "0",                                                                                       \
         "show each token's logprob and the N likeliest, after the answer or with --json in it",    \
         0,                                                                                         \
         FV_MAX_LOGPROBS},                                                                          \
        {"stop", NULL, FV_OPTION_LIST,                                                              \
         "TEXT", NULL, "stop string, not part of the answer; repeatable",                           \
         0,      0},                                                                                \
        {"ignore-eos",                                                                              \
         NULL,                                                                                      \
         FV_OPTION_FLAG,                                                                            \
         NULL,                                                                                      \
         NULL,                                                                                      \
         "ignore end-of-sequence: generate --max-tokens tokens",                                    \
         0,                                                                                         \
         0},                                                                                        \
        FV_ENGINE_OPTIONS

/* A request read from options, with what it owns. */
typedef struct fv_ask_request {
    fv_ask ask;
    fv_image *images;
} fv_ask_request;

/* Opens the engine that the options describe, for so many requests at a time. FV_EINVAL when
 * --checkpoint is missing. */
fv_status fv_request_engine(const fv_options *o, int32_t at_once, fv_local **out);

/* The bytes of an image's file; "-" is standard input, which is read once and kept. Gives *data
 * (free it) and *n. */
fv_status fv_request_file(const char *path, char **data, size_t *n);

/* FV_EINVAL when there is nothing to answer: an empty question. */
fv_status fv_request_check_question(const char *question);

/* The images that the options name, decoded. Gives *images [*n]; free them with fv_image_free,
 * the list with free. */
fv_status fv_request_images(const fv_options *o, fv_image **images, int32_t *n);

/* Reads and decodes the images and fills the request; `question` is borrowed. */
fv_status fv_request_open(const fv_options *o, const fv_local *local, const char *question,
                          fv_ask_request *out);
void fv_request_close(fv_ask_request *r);

/* The options of a request to a fleet, all but its prompt (cli/session.h). It is in the
 * arena and borrows from the options. */
fv_status fv_request_message(const fv_options *o, fv_arena *arena,
                             Fovea__Inference__V1__GenerateRequest *out);

/* An image's file as it is sent; in the arena. */
fv_status fv_request_image(const char *path, fv_arena *arena, Fovea__Inference__V1__Image **out);

#endif
