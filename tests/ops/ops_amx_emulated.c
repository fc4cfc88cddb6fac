/* The emulation of AMX in ops_run: results of products, and refusals of what AMX would refuse.
 * Exits with 77 where the CPU has AMX, or lacks what the emulation needs. */
#include <immintrin.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu/isa.h"
#include "tests/ops/ops_test.h"
#include "tests/ops/run/amx_emulated.h"

#define AMX __attribute__((target("amx-tile,amx-bf16,amx-int8")))

/* The operand of LDTILECFG. */
typedef struct config {
    uint8_t palette, row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} config;
_Static_assert(sizeof(config) == 64, "LDTILECFG reads 64 bytes");

enum { ROWS = 16, PAIRS = 16 };

/* The asm is needed because GCC assumes that only 8 bytes of c are read. */
AMX static void configure(const config *c) {
    __asm__ volatile("" : : "r"(c) : "memory");
    _tile_loadconfig(c);
}

/* Tiles 0 to 2, whole. */
static config whole(void) {
    config c = {.palette = 1};
    for (int i = 0; i < 3; i++) {
        c.rows[i] = ROWS;
        c.bytes[i] = 4 * PAIRS;
    }
    return c;
}

/* ---- products ---------------------------------------------------------------------------- */

/* bf16: row 0 of a times column 0 of b, added to `sum`. */
AMX static float product_bf16(const float *x, const float *y, int n, float sum) {
    uint16_t a[ROWS][2 * PAIRS] = {0}, b[PAIRS][2 * ROWS] = {0};
    float c[ROWS][ROWS] = {{sum}};
    for (int i = 0; i < n; i++) {
        a[0][i] = half_bits(x[i], FV_BF16);
        b[i / 2][i % 2] = half_bits(y[i], FV_BF16);
    }
    config shapes = whole();
    configure(&shapes);
    _tile_loadd(0, c, sizeof c[0]);
    _tile_loadd(1, a, sizeof a[0]);
    _tile_loadd(2, b, sizeof b[0]);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, c, sizeof c[0]);
    _tile_release();
    return c[0][0];
}

static void sums_of_bf16(void) {
    group("bf16: first and second numbers of pairs are summed apart");
    const float one[] = {1, 1, 1, 1}, large[] = {0x1p24f, 1, 1, 1};
    float got = product_bf16(large, one, 4, 0); /* in order it would stay 2^24 */
    check(got == 0x1p24f + 2, "the sum is %a", (double)got);
    got = product_bf16(one, one, 4, 0x1p-127f);
    check(got == 4, "the sum is %a", (double)got);
    group("bf16: subnormal numbers are zero");
    const float least[] = {0x1p-126f}, half[] = {0.5f};
    check(product_bf16(least, one, 1, 0) == 0x1p-126f, "the least normal number is zero");
    check(product_bf16(least, half, 1, 0) == 0, "a subnormal product is not zero");
    check(product_bf16(least, half, 1, 0x1p-127f) == 0, "a subnormal sum is not zero");
}

AMX static void products_of_int8(void) {
    group("int8: signed sums, modulo 2^32");
    int8_t a[ROWS][4 * PAIRS], b[PAIRS][4 * ROWS];
    int32_t c[ROWS][ROWS], want[ROWS][ROWS];
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < 4 * PAIRS; k++) a[i][k] = (int8_t)random_int(-128, 127);
    for (int k = 0; k < PAIRS; k++)
        for (int j = 0; j < 4 * ROWS; j++) b[k][j] = (int8_t)random_int(-128, 127);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < ROWS; j++) {
            int64_t sum = c[i][j] = j ? random_int(-1000, 1000) : INT32_MAX;
            for (int k = 0; k < 4 * PAIRS; k++) sum += a[i][k] * b[k / 4][4 * j + k % 4];
            want[i][j] = (int32_t)(uint32_t)sum;
        }
    config shapes = whole();
    configure(&shapes);
    _tile_loadd(0, c, sizeof c[0]);
    _tile_loadd(1, a, sizeof a[0]);
    _tile_loadd(2, b, sizeof b[0]);
    _tile_dpbssd(0, 1, 2);
    _tile_stored(0, c, sizeof c[0]);
    _tile_release();
    check(memcmp(c, want, sizeof c) == 0, "sums differ");
}

/* ---- refusals ---------------------------------------------------------------------------- */

AMX static void nothing_wrong(void) {
    config c = whole();
    configure(&c);
    _tile_zero(0);
    _tile_release();
}

AMX static void never_opened(void) { _tile_zero(0); }

AMX static void released(void) {
    nothing_wrong();
    _tile_zero(0);
}

AMX static void not_in_the_configuration(void) {
    config c = whole();
    configure(&c);
    _tile_zero(3);
}

AMX static void palette_2(void) {
    config c = whole();
    c.palette = 2;
    configure(&c);
}

AMX static void start_at_row_1(void) {
    config c = whole();
    c.row = 1;
    configure(&c);
}

AMX static void rows_17(void) {
    config c = whole();
    c.rows[2] = 17;
    configure(&c);
}

AMX static void bytes_68(void) {
    config c = whole();
    c.bytes[2] = 68;
    configure(&c);
}

AMX static void rows_of_no_bytes(void) {
    config c = whole();
    c.bytes[2] = 0;
    configure(&c);
}

AMX static void square_of_a_tile(void) {
    config c = whole();
    configure(&c);
    /* TDPBF16PS tmm0, tmm1, tmm1, which assemblers refuse, too. */
    __asm__ volatile(".byte 0xc4, 0xe2, 0x72, 0x5c, 0xc1");
}

AMX static void shapes_that_do_not_fit(void) {
    config c = whole();
    c.bytes[1] = 32;
    configure(&c);
    _tile_dpbssd(0, 1, 2);
}

AMX static void unsigned_bytes(void) {
    config c = whole();
    configure(&c);
    _tile_dpbuud(0, 1, 2);
}

static void no_instruction(void) { __asm__ volatile("ud2"); }

/* Runs fn in a process of its own; why: what it says before it ends with 1, NULL: it ends with 0. */
static void ends(void (*fn)(void), const char *why) {
    int out[2], status;
    if (pipe(out) != 0) exit(1);
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) exit(1);
    if (child == 0) {
        if (dup2(out[1], 2) < 0) _exit(2);
        fn();
        _exit(0);
    }
    close(out[1]);
    char said[256] = "", want[256] = "";
    size_t n = 0;
    for (ssize_t got;
         n < sizeof said - 1 && (got = read(out[0], said + n, sizeof said - 1 - n)) > 0;)
        n += (size_t)got;
    close(out[0]);
    if (waitpid(child, &status, 0) != child) exit(1);
    if (why) snprintf(want, sizeof want, "emulated AMX: %s\n", why);
    check(WIFEXITED(status) && WEXITSTATUS(status) == (why ? 1 : 0) && strcmp(said, want) == 0,
          "status %d and \"%s\" instead of \"%s\"", status, said, want);
}

int main(void) {
    fv_isa_choice here;
    if (fv_isa_choose("amx", &here) == FV_OK || !amx_emulate()) return 77;
    sums_of_bf16();
    products_of_int8();
    group("what AMX would refuse ends the program");
    ends(nothing_wrong, NULL);
    ends(never_opened, "a tile that is not open");
    ends(released, "a tile that is not open");
    ends(not_in_the_configuration, "a tile that is not open");
    ends(palette_2, "a configuration that is not of palette 1, row 0");
    ends(start_at_row_1, "a configuration that is not of palette 1, row 0");
    ends(rows_17, "a tile of more than 16 rows of 64 bytes");
    ends(bytes_68, "a tile of more than 16 rows of 64 bytes");
    ends(rows_of_no_bytes, "a tile of more than 16 rows of 64 bytes");
    ends(square_of_a_tile, "a product of a tile with itself");
    ends(shapes_that_do_not_fit, "a product of tiles whose shapes do not fit");
    ends(unsigned_bytes, "an instruction that is not emulated");
    ends(no_instruction, "an instruction that is not of AMX");
    return summary();
}
