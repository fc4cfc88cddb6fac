/* Measures the machine's limits (bench/machine.h): bytes per second of a read-only loop, and flop/s
 * of register-only multiply-add loops in f32 and bf16. compare_engines runs it repeatedly, since
 * other guests on a host change the memory rate. Each result is a median over some tenths of a
 * second.
 *
 *     bench_machine --threads 2 --rounds 15 --weights 512 --json FILE */
#include "bench/machine.h"

int main(int argc, char **argv) {
    static bench b;
    bench_open(&b, argc, argv, "bench_machine [options]     only: read, fma, bf16",
               "How fast memory is read, and how fast registers are multiplied and added.");
    for (b.round = 0; b.round < b.n_round; b.round++) {
        b.next_row = 0;
        if (bench_wants(&b, "read")) {
            bench_measure_read(&b);
            bench_note(&b, "read loop", "GB/s", b.read_rate, 1e9, BENCH_NO_LIMIT);
        }
        if (bench_wants(&b, "fma")) {
            bench_measure_fma(&b);
            bench_note(&b, "fma loop", "GFLOP/s", b.fma_rate, 1e9, BENCH_NO_LIMIT);
        }
        if (bench_wants(&b, "bf16") && bench_measure_bf16(&b))
            bench_note(&b, "bf16 loop", "GFLOP/s", b.bf16_rate, 1e9, BENCH_NO_LIMIT);
    }
    bench_report(&b);
    bench_close(&b);
    return 0;
}
