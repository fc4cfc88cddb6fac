/* Compares the CUDA plugin with the limits of its GPU, at the shapes of LLaVA-1.5-7B.
 *
 *     bench_gpu [-o GROUP] PLUGIN_DIR [ROUNDS [NUMBERS [TRACE]]]
 *
 * The run first measures two ceilings: bytes read and written per second by a large device copy,
 * and bf16 flop/s of a large matrix product. A row times many calls of one operation between two
 * device events and divides by the calls. Each call uses the next of several weights or caches,
 * together larger than the L2 cache. The row is the median over ROUNDS. GROUP is one of ceilings, products,
 * attention, packed and network (default: all). NUMBERS is a file for compare_torch.py, to which rows are added; TRACE is a file for GPU time by kernel, which makes the rows slower. On the
 * emulated plugin sizes are small and times are meaningless. */
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/rig.h"
#include "kernels/backends/open.h"

enum { ROUNDS = 9, MOST_ROUNDS = 99 };

static const struct {
    const char *name;
    void (*measure)(void);
} groups[] = {{"products", bench_products},
              {"attention", bench_attention},
              {"packed", bench_packed},
              {"network", bench_network}};

enum { N_GROUP = sizeof groups / sizeof *groups };

static int usage(void) {
    fprintf(stderr,
            "usage: bench_gpu [-o GROUP] PLUGIN_DIR [ROUNDS [NUMBERS [TRACE]]]\nGROUP: ceilings");
    for (int i = 0; i < N_GROUP; i++) fprintf(stderr, ", %s", groups[i].name);
    fprintf(stderr, "\n");
    return 2;
}

static bool is_group(const char *name) {
    bool known = strcmp(name, "ceilings") == 0;
    for (int i = 0; i < N_GROUP; i++) known |= strcmp(name, groups[i].name) == 0;
    return known;
}

int main(int argc, char **argv) {
    const char *only = NULL;
    if (argc > 2 && strcmp(argv[1], "-o") == 0) {
        only = argv[2];
        argc -= 2, argv += 2;
    }
    if (argc < 2 || argc > 5 || (only && !is_group(only))) return usage();
    int32_t n = argc > 2 ? atoi(argv[2]) : ROUNDS;
    rig.n_round = n < 1 || n > MOST_ROUNDS ? ROUNDS : n;
    rig.small = strstr(argv[1], "emulated") != NULL;
    fv_plugin_set_dir(argv[1]);
    must(fv_backend_open(&rig.be, "cuda",
                         &(fv_backend_options){.trace = argc > 4 ? argv[4] : NULL}));
    if (argc > 3 && !(rig.numbers = fopen(argv[3], "a"))) {
        fprintf(stderr, "bench_gpu: %s cannot be written\n", argv[3]);
        return 1;
    }
    if (rig.small) printf("emulated: times mean nothing\n");
    bench_ceilings();
    for (int i = 0; i < N_GROUP; i++)
        if (!only || strcmp(only, groups[i].name) == 0) groups[i].measure();
    if (!rig.small) printf("%d of %d aims are reached\n", rig.n_reached, rig.n_aim);
    if (rig.numbers) fclose(rig.numbers);
    fv_backend_close(&rig.be);
    return 0;
}
