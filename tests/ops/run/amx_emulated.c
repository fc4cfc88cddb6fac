/* A handler of SIGILL that carries out AMX's tile instructions (Intel's Software Developer's
 * Manual, volume 2). Their encoding is three-byte VEX, map 0F38:
 *
 *     C4  RXB.mmmmm  W.vvvv.L.pp  opcode  ModRM  [SIB]  [displacement]
 *
 * with R, X, B and vvvv inverted; reg, r/m and vvvv name tiles or, in addresses, registers. */
#include "tests/ops/run/amx_emulated.h"

#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>
#include <xmmintrin.h>

enum { N_TILE = 8, ROWS = 16, BYTES = 64, WORDS = BYTES / 4 };

typedef struct tile {
    int rows, bytes; /* bytes of a row; 0: not open */
    union {
        uint8_t byte[ROWS][BYTES];
        uint32_t word[ROWS][WORDS];
        float f32[ROWS][WORDS];
    } at;
} tile;

static _Thread_local tile tiles[N_TILE];

static _Noreturn void refuse(const char *why) {
    static const char who[] = "emulated AMX: ";
    if (write(2, who, sizeof who - 1) > 0 && write(2, why, strlen(why)) > 0)
        (void)write(2, "\n", 1);
    _exit(1);
}

static tile *open_tile(int i) {
    if (i >= N_TILE || tiles[i].rows == 0) refuse("a tile that is not open");
    return &tiles[i];
}

/* ---- instructions ------------------------------------------------------------------------ */

static void load_config(const uint8_t *from) {
    memset(tiles, 0, sizeof tiles);
    if (from[0] == 0) return;
    if (from[0] != 1 || from[1] != 0) refuse("a configuration that is not of palette 1, row 0");
    for (int i = 0; i < N_TILE; i++) {
        uint16_t bytes;
        memcpy(&bytes, from + 16 + 2 * i, sizeof bytes);
        int rows = from[48 + i];
        if (rows > ROWS || bytes > BYTES || (rows == 0) != (bytes == 0))
            refuse("a tile of more than 16 rows of 64 bytes");
        tiles[i].rows = rows;
        tiles[i].bytes = bytes;
    }
}

static void zero(tile *t) { memset(&t->at, 0, sizeof t->at); }

static void load(tile *t, const uint8_t *from, int64_t stride) {
    zero(t);
    for (int i = 0; i < t->rows; i++) memcpy(t->at.byte[i], from + i * stride, (size_t)t->bytes);
}

static void store(const tile *t, uint8_t *to, int64_t stride) {
    for (int i = 0; i < t->rows; i++) memcpy(to + i * stride, t->at.byte[i], (size_t)t->bytes);
}

/* c [rows, cols] += a [rows, K words] b [K, cols words]. Beyond their rows and columns tiles hold zeros. */
static void check_product(const tile *c, const tile *a, const tile *b) {
    if (a == b || a == c || b == c) refuse("a product of a tile with itself");
    if (c->rows != a->rows || c->bytes != b->bytes || a->bytes != 4 * b->rows || a->bytes % 4 != 0)
        refuse("a product of tiles whose shapes do not fit");
}

static float low(uint32_t word) {
    union {
        uint32_t u;
        float f;
    } x = {word << 16};
    return x.f;
}

static float high(uint32_t word) { return low(word >> 16); }

/* Two sums along K, of the first and of the second numbers of the pairs, each of fused multiply-adds;
 * their sum is added to c. Subnormal numbers are zero, before and after, and results are rounded to the
 * nearest even, whatever the thread's MXCSR says. */
static void product_bf16(tile *c, const tile *a, const tile *b) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(0x1f80 | 0x8040); /* no exceptions; FTZ, DAZ */
    for (int i = 0; i < c->rows; i++) {
        float even[WORDS] = {0}, odd[WORDS] = {0};
        for (int k = 0; k < b->rows; k++) {
            float x = low(a->at.word[i][k]), y = high(a->at.word[i][k]);
            for (int j = 0; j < WORDS; j++) {
                even[j] = fmaf(x, low(b->at.word[k][j]), even[j]);
                odd[j] = fmaf(y, high(b->at.word[k][j]), odd[j]);
            }
        }
        for (int j = 0; j < c->bytes / 4; j++) c->at.f32[i][j] += even[j] + odd[j];
    }
    _mm_setcsr(before);
}

/* Four products of signed bytes, whose sum is added to c, modulo 2^32. */
static void product_int8(tile *c, const tile *a, const tile *b) {
    for (int i = 0; i < c->rows; i++)
        for (int k = 0; k < b->rows; k++)
            for (int j = 0; j < c->bytes / 4; j++) {
                int sum = 0;
                for (int n = 0; n < 4; n++)
                    sum += (int8_t)a->at.byte[i][4 * k + n] * (int8_t)b->at.byte[k][4 * j + n];
                c->at.word[i][j] += (uint32_t)sum;
            }
}

/* ---- decoding ---------------------------------------------------------------------------- */

typedef struct instruction {
    int opcode, prefix; /* prefix: 0, 1: 66, 2: F3, 3: F2 */
    int reg, vvvv;
    bool memory;
    int rm;         /* not memory */
    uint8_t *base;  /* memory: with the displacement */
    int64_t stride; /* memory: the scaled index, 0 without one */
    int length;
} instruction;

static int64_t value(const ucontext_t *u, int reg) {
    static const int order[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};
    return u->uc_mcontext.gregs[order[reg]];
}

/* In VEX's map 0F38 these opcodes are AMX's alone. */
static bool is_amx(const uint8_t *at) {
    return at[0] == 0xc4 && (at[1] & 0x1f) == 2 &&
           (at[3] == 0x49 || at[3] == 0x4b || at[3] == 0x5c || at[3] == 0x5e);
}

static instruction read_instruction(const ucontext_t *u, const uint8_t *at) {
    if (!is_amx(at)) refuse("an instruction that is not of AMX");
    instruction x = {.opcode = at[3], .prefix = at[2] & 3, .vvvv = ~(at[2] >> 3) & 15, .length = 5};
    int R = at[1] & 0x80 ? 0 : 8, X = at[1] & 0x40 ? 0 : 8, B = at[1] & 0x20 ? 0 : 8;
    int mod = at[4] >> 6, rm = at[4] & 7;
    x.reg = (at[4] >> 3 & 7) | R;
    x.rm = rm | B;
    x.memory = mod != 3;
    if (!x.memory) return x;
    int64_t base;
    int32_t displacement = 0;
    bool with_sib = rm == 4, without_base;
    if (with_sib) {
        int sib = at[x.length++], index = (sib >> 3 & 7) | X;
        if (index != 4) x.stride = value(u, index) * (1 << (sib >> 6));
        rm = sib & 7;
    }
    without_base = mod == 0 && rm == 5;
    base = without_base ? 0 : value(u, rm | B);
    if (mod == 1) displacement = (int8_t)at[x.length];
    if (mod == 2 || without_base) memcpy(&displacement, at + x.length, sizeof displacement);
    x.length += mod == 1 ? 1 : mod == 2 || without_base ? 4 : 0;
    if (without_base && !with_sib) base = (int64_t)(intptr_t)at + x.length; /* relative to rip */
    x.base = (uint8_t *)(intptr_t)(base + displacement);
    return x;
}

static void run(const instruction *x) {
    enum { CONFIG = 0x49, MOVE = 0x4b, BF16 = 0x5c, INT8 = 0x5e, NONE = 0, F3 = 2, F2 = 3 };
    switch (x->opcode << 2 | x->prefix) {
    case CONFIG << 2 | NONE: /* LDTILECFG; TILERELEASE */
        if (x->memory)
            load_config(x->base);
        else
            memset(tiles, 0, sizeof tiles);
        return;
    case CONFIG << 2 | F2: zero(open_tile(x->reg)); return;
    case MOVE << 2 | F2: load(open_tile(x->reg), x->base, x->stride); return;
    case MOVE << 2 | F3: store(open_tile(x->reg), x->base, x->stride); return;
    case BF16 << 2 | F3:
    case INT8 << 2 | F2: {
        tile *c = open_tile(x->reg), *a = open_tile(x->rm), *b = open_tile(x->vvvv);
        check_product(c, a, b);
        if (x->opcode == BF16)
            product_bf16(c, a, b);
        else
            product_int8(c, a, b);
        return;
    }
    default: refuse("an instruction that is not emulated");
    }
}

/* Also carries out AMX instructions that follow directly: entering the kernel takes longer than
 * emulating one. */
static void on_illegal(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    greg_t *rip = &u->uc_mcontext.gregs[REG_RIP];
    (void)signal;
    (void)info;
    do {
        instruction x = read_instruction(u, (const uint8_t *)*rip);
        run(&x);
        *rip += x.length;
    } while (is_amx((const uint8_t *)*rip));
}

bool amx_emulate(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
        return false;
    struct sigaction a = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&a.sa_mask);
    return sigaction(SIGILL, &a, NULL) == 0;
}
