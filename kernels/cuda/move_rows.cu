/* Rows that move within the device's memory (fv_row_moves), in one launch, whose table is copied once.
 *
 * A thread has a word of a row, and moves it for all rows of a chain in their order. So no thread reads what
 * another one writes, and a chain needs no barrier. */
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/placement.h"

enum { THREADS = 128 };

/* Grid: chains by blockDim.y. */
template <typename WORD>
static __global__ void __launch_bounds__(THREADS)
    move_rows(const fv_row_move *move, const int32_t *end, int32_t n_chain, int32_t words) {
    int32_t chain = (int32_t)(blockIdx.x * blockDim.y + threadIdx.y);
    if (chain >= n_chain) return;
    int32_t begin = chain ? end[chain - 1] : 0;
    for (int32_t w = (int32_t)threadIdx.x; w < words; w += (int32_t)blockDim.x)
        for (int32_t i = begin; i < end[chain]; i++)
            static_cast<WORD *>(move[i].to)[w] = static_cast<const WORD *>(move[i].from)[w];
}

static bool are_aligned(const fv_row_moves *m, int32_t n) {
    uintptr_t all = m->bytes;
    for (int32_t i = 0; i < n; i++)
        all |= reinterpret_cast<uintptr_t>(m->move[i].to) |
               reinterpret_cast<uintptr_t>(m->move[i].from);
    return all % sizeof(uint4) == 0;
}

template <typename WORD>
static void launch(fv_cuda *c, const fv_row_moves *m, const fv_row_move *move, const int32_t *end) {
    int32_t words = (int32_t)(m->bytes / sizeof(WORD));
    unsigned wide = 1;
    while (wide < THREADS && (int32_t)wide < words) wide *= 2;
    unsigned high = THREADS / wide;
    FV_LAUNCH(move_rows<WORD>, dim3(fv_cuda_blocks(m->n_chain, high)), dim3(wide, high), 0,
              c->stream, move, end, m->n_chain, words);
}

extern "C" fv_status fv_cuda_move_rows(fv_device *dev, const fv_row_moves *m) {
    fv_cuda *c = fv_cuda_of_device(dev);
    int32_t n = m->n_chain ? m->end[m->n_chain - 1] : 0;
    if (n == 0 || m->bytes == 0) return FV_OK;
    size_t moves = (size_t)n * sizeof *m->move, ends = (size_t)m->n_chain * sizeof *m->end;
    void *host, *device;
    FV_TRY(fv_cuda_stage(c, moves + ends, &host, &device));
    memcpy(host, m->move, moves);
    memcpy(static_cast<char *>(host) + moves, m->end, ends);
    FV_TRY(fv_cuda_stage_send(c, host, device, moves + ends));
    const fv_row_move *move = static_cast<const fv_row_move *>(device);
    const int32_t *end = reinterpret_cast<const int32_t *>(static_cast<char *>(device) + moves);
    if (are_aligned(m, n))
        launch<uint4>(c, m, move, end);
    else
        launch<uint16_t>(c, m, move, end);
    return fv_cuda_launched("move_rows");
}
