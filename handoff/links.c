/* Links as bytes, and their bounds. */
#include "handoff/links.h"

#include "handoff/bytes.h"

void fv_links_put(const fv_wire_link *link, uint32_t n, uint8_t *out) {
    for (uint32_t i = 0; i < n; i++) {
        fv_put_bytes(&out, link[i].key, sizeof link[i].key);
        fv_put_u32(&out, link[i].n_text);
        fv_put_u32(&out, link[i].n_visual);
    }
}

fv_status fv_links_get(const uint8_t *p, size_t bytes, fv_wire_link *link, uint32_t *n) {
    if (bytes % FV_LINK_BYTES != 0 || bytes / FV_LINK_BYTES > FV_LINKS_MAX)
        return FV_REFUSE(INVALID, "%zu bytes are no links of %d bytes, at most %d of them", bytes,
                         FV_LINK_BYTES, FV_LINKS_MAX);
    *n = (uint32_t)(bytes / FV_LINK_BYTES);
    for (uint32_t i = 0; i < *n; i++) {
        fv_get_bytes(&p, link[i].key, sizeof link[i].key);
        link[i].n_text = fv_get_u32(&p);
        link[i].n_visual = fv_get_u32(&p);
        link[i].name = 0;
    }
    return FV_OK;
}

fv_status fv_links_check(const fv_wire_link *link, uint32_t n, uint32_t n_text, uint32_t n_visual) {
    fv_wire_link before = {.n_text = 0};
    if (n > FV_LINKS_MAX)
        return FV_REFUSE(INVALID, "the prompt has %u links; the maximum is %d", n, FV_LINKS_MAX);
    for (uint32_t i = 0; i < n; before = link[i++])
        if (link[i].n_text < before.n_text || link[i].n_visual < before.n_visual ||
            link[i].n_text > n_text || link[i].n_visual > n_visual ||
            (link[i].n_text == before.n_text && link[i].n_visual == before.n_visual))
            return FV_REFUSE(INVALID,
                             "link %u of the prompt ends after %u text and %u visual tokens, link "
                             "%u before it after %u and %u, the prompt after %u and %u",
                             i, link[i].n_text, link[i].n_visual, i, before.n_text, before.n_visual,
                             n_text, n_visual);
    return FV_OK;
}

void fv_wire_kept_put(const fv_wire_kept *k, uint8_t *out) {
    fv_put_u32(&out, k->n_link);
    fv_put_u32(&out, k->n_text);
    fv_put_u32(&out, k->n_visual);
}

void fv_wire_kept_get(const uint8_t *p, fv_wire_kept *out) {
    out->n_link = fv_get_u32(&p);
    out->n_text = fv_get_u32(&p);
    out->n_visual = fv_get_u32(&p);
}
