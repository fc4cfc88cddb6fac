/* Random tensors, and safetensors files around them.
 *
 *   value(name, i) = mean + std * z(hash(seed, name), i)
 *
 * z is close to a standard normal: the sum of the four 16-bit words of a 64-bit hash of the
 * element's index, centred and scaled (Irwin-Hall with n = 4). One hash per value, no state, so
 * any part of any tensor can be made independently. It is integer arithmetic up to the last step,
 * so every compiler makes the same bits. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/file.h"
#include "model/families/tensor_specs.h"
#include "model/synth/internal.h"

enum { PATH_CAP = 4096, NAME_CAP = 64, FILES_MAX = 1000 };
enum { CHUNK = 1 << 18 /* elements */, THREADS_MAX = 3 /* beside the caller's */ };

/* ---- values ---------------------------------------------------------------------------- */

/* splitmix64's output function (Steele, Lea, Flood 2014). */
static inline uint64_t mix64(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

/* Sum of four 16-bit words, 0..262140: its mean and standard deviation. */
static const double sum_mean = 131070, sum_std = 37837.22747;

static void fill(uint64_t key, uint64_t first, size_t n, float mean, float std, float *out) {
    float scale = (float)((double)std / sum_std);
    for (size_t i = 0; i < n; i++) {
        uint64_t h = mix64(key + (first + i + 1) * 0x9E3779B97F4A7C15ULL);
        int32_t sum = (int32_t)((h & 0xFFFF) + (h >> 16 & 0xFFFF) + (h >> 32 & 0xFFFF) + (h >> 48));
        out[i] = mean + (float)(sum - (int32_t)sum_mean) * scale;
    }
}

static inline uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Rounds to nearest, ties to even; values are finite. */
static inline uint16_t bf16_of(float x) {
    uint32_t u = bits_of(x);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

/* Rounds likewise; |x| < 65504, which holds for all values here. */
static inline uint16_t f16_of(float x) {
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, a = u & 0x7FFFFFFF;
    if (a < 0x38800000) { /* subnormal: steps of 2^-24, which are 0.5F's last places */
        float f;
        memcpy(&f, &a, sizeof f);
        return (uint16_t)(sign | (bits_of(f + 0.5F) - bits_of(0.5F)));
    }
    a += 0xFFF + (a >> 13 & 1);
    return (uint16_t)(sign | ((a - 0x38000000) >> 13));
}

/* Mean and standard deviation that keep activations near 1 at any depth. */
static void spread_of(const fv_tensor_spec *e, float *mean, float *std) {
    int64_t fan_in = 1;
    for (int32_t i = 1; i < e->n_dim; i++) fan_in *= e->shape[i];
    if (e->role == FV_ROLE_EXPERTS) fan_in = e->shape[2];
    if (e->role == FV_ROLE_EXPERTS_TRANSPOSED) fan_in = e->shape[1];
    float linear = (float)(1 / sqrt((double)fan_in));
    *mean = 0;
    *std = 0;
    switch (e->role) {
    case FV_ROLE_EXPERTS:
    case FV_ROLE_EXPERTS_TRANSPOSED:
    case FV_ROLE_LINEAR:
    case FV_ROLE_EXACT: *std = linear; break;
    case FV_ROLE_QUERY: *std = 4 * linear; break; /* scores that single out rows, as trained */
    case FV_ROLE_ROUTER:                          /* clear choices of experts */
    case FV_ROLE_HEAD: *std = 2 * linear; break;  /* logits with a spread of 2: a clear first */
    case FV_ROLE_EMBEDDING: *std = 0.6F; break;
    case FV_ROLE_BIAS: *std = 0.05F; break;
    case FV_ROLE_LOWER: *mean = -1.5F, *std = 0.1F; break; /* one number in seven is clipped */
    case FV_ROLE_UPPER: *mean = 1.5F, *std = 0.1F; break;
    case FV_ROLE_NORM: *mean = 1, *std = 0.1F; break;
    }
}

/* ---- files ----------------------------------------------------------------------------- */

/* Writes one file at a time: the header first, then threads take its tensors in turn and write each
 * to its place, so that computing values and waiting for the disk overlap. */
typedef struct writer {
    const fv_synth_options *opt;
    const char *dir;
    const fv_tensor_spec *entry; /* [n], in file order */
    uint64_t *off;               /* [n], offset of the tensor's bytes in its file */
    int32_t n;
    fv_name_mapping name_mapping;
    const fv_tensor_names *names; /* the family's */
    int fd;
    char path[PATH_CAP]; /* of fd */
    atomic_int next;     /* next tensor to take */
    int32_t last;        /* one past the file's last tensor */
    atomic_int error;    /* errno of the first failure */
} writer;

typedef struct chunk {
    float values[CHUNK];
    uint16_t halves[CHUNK];
} chunk;

static uint64_t bytes_of(const writer *w, const fv_tensor_spec *e) {
    uint64_t n = fv_dtype_bytes(w->opt->dtype);
    for (int32_t i = 0; i < e->n_dim; i++) n *= (uint64_t)e->shape[i];
    return n;
}

/* 0, or errno. */
static int put(int fd, const void *data, size_t n, uint64_t off) {
    const char *p = data;
    while (n > 0) {
        ssize_t done = pwrite(fd, p, n, (off_t)off);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? errno : EIO;
        p += done;
        off += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

static int put_tensor(const writer *w, int32_t i, chunk *c) {
    const fv_tensor_spec *e = &w->entry[i];
    fv_dtype dtype = w->opt->dtype;
    size_t size = fv_dtype_bytes(dtype);
    uint64_t key = XXH64(e->name, strlen(e->name), w->opt->seed), n = bytes_of(w, e) / size;
    float mean, std;
    spread_of(e, &mean, &std);
    int error = 0;
    for (uint64_t at = 0; at < n && !error; at += CHUNK) {
        size_t m = n - at < CHUNK ? (size_t)(n - at) : CHUNK;
        fill(key, at, m, mean, std, c->values);
        if (dtype == FV_BF16)
            for (size_t k = 0; k < m; k++) c->halves[k] = bf16_of(c->values[k]);
        else if (dtype == FV_F16)
            for (size_t k = 0; k < m; k++) c->halves[k] = f16_of(c->values[k]);
        const void *data = dtype == FV_F32 ? (void *)c->values : c->halves;
        error = put(w->fd, data, m * size, w->off[i] + at * size);
    }
    return error;
}

static void *write_tensors(void *arg) {
    writer *w = arg;
    chunk *c = malloc(sizeof *c);
    int error = c ? 0 : ENOMEM;
    while (!error && !atomic_load(&w->error)) {
        int32_t i = atomic_fetch_add(&w->next, 1);
        if (i >= w->last) break;
        error = put_tensor(w, i, c);
    }
    if (error) atomic_store(&w->error, error);
    free(c);
    return NULL;
}

/* This thread works too, so failing to start a thread is no error. */
static void write_in_threads(writer *w) {
    pthread_t thread[THREADS_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = 0;
    while (n < THREADS_MAX && n + 1 < cores && !pthread_create(&thread[n], NULL, write_tensors, w))
        n++;
    write_tensors(w);
    while (n > 0) pthread_join(thread[--n], NULL);
}

/* Writes length, JSON, and spaces up to a multiple of 8, so that data is aligned. */
static fv_status put_header(writer *w, int32_t first, int32_t last) {
    static const char *const dtypes[] = {[FV_F32] = "F32", [FV_BF16] = "BF16", [FV_F16] = "F16"};
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0;
    for (int32_t i = first; i < last; i++) {
        const fv_tensor_spec *e = &w->entry[i];
        char key[FV_TENSOR_NAME_MAX];
        fv_name_mapping_key(w->name_mapping, w->names, e->name, key);
        json_t *shape = json_array();
        for (int32_t k = 0; k < e->n_dim; k++)
            json_array_append_new(shape, json_integer(e->shape[k]));
        uint64_t end = at + bytes_of(w, e);
        w->off[i] = at;
        json_object_set_new(header, key,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[w->opt->dtype],
                                      "shape", shape, "data_offsets", (json_int_t)at,
                                      (json_int_t)end));
        at = end;
    }
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text) return FV_FAIL(FV_ENOMEM, "no memory for the header of %s", w->path);
    size_t n = strlen(text), pad = (8 - n % 8) % 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)(n + pad) >> 8 * i);
    int error = put(w->fd, length, sizeof length, 0);
    if (!error) error = put(w->fd, text, n, sizeof length);
    if (!error) error = put(w->fd, "        ", pad, sizeof length + n);
    free(text);
    for (int32_t i = first; i < last; i++) w->off[i] += sizeof length + n + pad;
    atomic_store(&w->error, error);
    return FV_OK;
}

static fv_status write_file(writer *w, const char *name, int32_t first, int32_t last) {
    FV_TRY(fv_path_join(w->dir, name, w->path, sizeof w->path));
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) return FV_FAIL(FV_EIO, "cannot create %s: %s", w->path, strerror(errno));
    fv_status st = put_header(w, first, last);
    if (st == FV_OK) {
        w->last = last;
        atomic_store(&w->next, first);
        write_in_threads(w);
    }
    int error = atomic_load(&w->error);
    if (close(w->fd) != 0 && !error) error = errno;
    if (st == FV_OK && error) st = FV_FAIL(FV_EIO, "cannot write %s: %s", w->path, strerror(error));
    return st;
}

/* Writes shards of about equal bytes, none empty, with tensors in order. */
static fv_status write_shards(writer *w, int32_t n_shard, uint64_t total, json_t *map) {
    int32_t first = 0;
    uint64_t done = 0;
    for (int32_t s = 0; s < n_shard; s++) {
        int32_t last = first, must_leave = n_shard - s - 1;
        uint64_t goal = total / (uint64_t)n_shard * (uint64_t)(s + 1);
        do done += bytes_of(w, &w->entry[last++]);
        while (last < w->n - must_leave && (done < goal || must_leave == 0));
        char name[NAME_CAP];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s + 1, n_shard);
        FV_TRY(write_file(w, name, first, last));
        for (int32_t i = first; i < last; i++) {
            char key[FV_TENSOR_NAME_MAX];
            fv_name_mapping_key(w->name_mapping, w->names, w->entry[i].name, key);
            json_object_set_new(map, key, json_string(name));
        }
        first = last;
    }
    return FV_OK;
}

static fv_status write_all(writer *w, fv_synth_report *out) {
    uint64_t total = 0;
    for (int32_t i = 0; i < w->n; i++) total += bytes_of(w, &w->entry[i]);
    int32_t n_shard = w->opt->n_shard > 1 && w->dir == w->opt->dir ? w->opt->n_shard : 1;
    if (n_shard > w->n || n_shard > FILES_MAX)
        return FV_FAIL(FV_EINVAL, "%d shards for %d tensors are too many", n_shard, w->n);
    if (n_shard == 1) {
        FV_TRY(write_file(w, "model.safetensors", 0, w->n));
    } else {
        json_t *map = json_object();
        fv_status st = write_shards(w, n_shard, total, map);
        json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total,
                                  "weight_map", map);
        if (st != FV_OK) {
            json_decref(index);
            return st;
        }
        FV_TRY(fv_synth_write_json(w->dir, "model.safetensors.index.json", index));
    }
    out->bytes += total;
    out->n_tensor += w->n;
    out->n_file += n_shard;
    return FV_OK;
}

/* Writes the tower's weights to its directory, with the names of a CLIPVisionModel. The tower is
 * last in the list. */
static fv_status write_tower(writer *w, const char *dir, fv_synth_report *out) {
    static const fv_tensor_names names = {.text = "", .tower = "vision_model."};
    int32_t n = 0;
    while (strncmp(w->entry[n].name, "vision.", 7) != 0) n++;
    writer tower = *w;
    tower.dir = dir;
    tower.names = &names;
    tower.entry += n;
    tower.off += n;
    tower.n -= n;
    w->n = n;
    return write_all(&tower, out);
}

fv_status fv_synth_write_weights(const fv_synth_options *opt, const char *tower,
                                 const fv_model_config *cfg, fv_synth_report *out) {
    fv_tensor_spec *entry = NULL;
    int32_t n = 0;
    FV_TRY(fv_tensor_specs_build(cfg, true, &entry, &n));
    if (cfg->text.tied_head) { /* tied: not in the file */
        int32_t kept = 0;
        for (int32_t i = 0; i < n; i++)
            if (entry[i].role != FV_ROLE_HEAD) entry[kept++] = entry[i];
        n = kept;
    }
    writer w = {.opt = opt,
                .dir = opt->dir,
                .entry = entry,
                .n = n,
                .name_mapping = opt->name_mapping,
                .names = cfg->family->names};
    /* a text-only model has no hub names */
    if (!cfg->has_vision && opt->name_mapping != FV_NAME_MAPPING_BARE)
        w.name_mapping = FV_NAME_MAPPING_ORIGINAL;
    w.off = calloc((size_t)n + 1, sizeof *w.off);
    *out = (fv_synth_report){0};
    fv_status st = w.off ? FV_OK : FV_FAIL(FV_ENOMEM, "no memory to write weights");
    if (st == FV_OK && tower) st = write_tower(&w, tower, out);
    if (st == FV_OK) st = write_all(&w, out);
    free(w.off);
    free(entry);
    return st;
}
