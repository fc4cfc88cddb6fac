#ifndef FOVEA_HANDOFF_BYTES_H
#define FOVEA_HANDOFF_BYTES_H

/* Numbers of the hand-off are little-endian. Arrays of numbers (tokens, positions, ids) are sent as they
 * are in memory, so the machine must be little-endian too. */
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "KV entries are sent as they are in memory: this needs a little-endian machine"
#endif

/* Writes a number and advances *at. */
static inline void fv_put_bytes(uint8_t **at, const void *p, size_t n) {
    if (n) memcpy(*at, p, n);
    *at += n;
}
static inline void fv_put_u8(uint8_t **at, uint8_t x) { *(*at)++ = x; }
static inline void fv_put_u16(uint8_t **at, uint16_t x) { fv_put_bytes(at, &x, sizeof x); }
static inline void fv_put_u32(uint8_t **at, uint32_t x) { fv_put_bytes(at, &x, sizeof x); }
static inline void fv_put_u64(uint8_t **at, uint64_t x) { fv_put_bytes(at, &x, sizeof x); }
static inline void fv_put_f32(uint8_t **at, float x) { fv_put_bytes(at, &x, sizeof x); }

/* Reads a number and advances *at; the caller has checked the bounds. */
static inline void fv_get_bytes(const uint8_t **at, void *p, size_t n) {
    if (n) memcpy(p, *at, n);
    *at += n;
}
static inline uint8_t fv_get_u8(const uint8_t **at) { return *(*at)++; }
static inline uint16_t fv_get_u16(const uint8_t **at) {
    uint16_t x;
    fv_get_bytes(at, &x, sizeof x);
    return x;
}
static inline uint32_t fv_get_u32(const uint8_t **at) {
    uint32_t x;
    fv_get_bytes(at, &x, sizeof x);
    return x;
}
static inline uint64_t fv_get_u64(const uint8_t **at) {
    uint64_t x;
    fv_get_bytes(at, &x, sizeof x);
    return x;
}
static inline float fv_get_f32(const uint8_t **at) {
    float x;
    fv_get_bytes(at, &x, sizeof x);
    return x;
}

#endif
