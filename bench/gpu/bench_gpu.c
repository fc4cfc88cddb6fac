/* Compares the CUDA plugin with the limits of its GPU, at the shapes of LLaVA-1.5-7B.
 *
 *     bench_gpu PLUGIN_DIR [ROUNDS [NUMBERS [TRACE]]]
 *
 * The run first measures two ceilings: bytes read and written per second by a large device copy,
 * and bf16 flop/s of a large matrix product. A row times many calls of one operation between two
 * device events and divides by the calls. Each call uses the next of several weights or caches,
 * together larger than the L2 cache. The row is the median over ROUNDS. NUMBERS is a file for
 * compare_torch.py; TRACE is a file for GPU time by kernel, which makes the rows slower. On the
 * emulated plugin sizes are small and times are meaningless. */
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/rig.h"
#include "kernels/backends/open.h"

enum { ROUNDS = 9, MOST_ROUNDS = 99 };

int main(int argc, char **argv) {
    if (argc < 2 || argc > 5) {
        fprintf(stderr, "usage: bench_gpu PLUGIN_DIR [ROUNDS [NUMBERS [TRACE]]]\n");
        return 2;
    }
    int32_t n = argc > 2 ? atoi(argv[2]) : ROUNDS;
    rig.n_round = n < 1 || n > MOST_ROUNDS ? ROUNDS : n;
    rig.small = strstr(argv[1], "emulated") != NULL;
    fv_plugin_set_dir(argv[1]);
    must(fv_backend_open(&rig.be, "cuda",
                         &(fv_backend_options){.trace = argc > 4 ? argv[4] : NULL}));
    if (argc > 3 && !(rig.numbers = fopen(argv[3], "w"))) {
        fprintf(stderr, "bench_gpu: %s cannot be written\n", argv[3]);
        return 1;
    }
    if (rig.small) printf("emulated: times mean nothing\n");
    bench_ceilings();
    bench_products();
    bench_attention();
    bench_packed();
    bench_network();
    if (!rig.small) printf("%d of %d aims are reached\n", rig.n_reached, rig.n_aim);
    if (rig.numbers) fclose(rig.numbers);
    fv_backend_close(&rig.be);
    return 0;
}
