/* Text in codes (packed/text_codes.h): the rule from the parameters of the pack methods, on both
 * sides. */
#include "policy/plan/contribute.h"
#include "policy/plan/decode.h"

/* T is rounded up to whole tiles. */
fv_text_rule fv_text_rule_of(bool no, bool all, bool bits_4, int32_t recompress) {
    enum { TILE = 16 };
    if (no) return (fv_text_rule){0};
    return (fv_text_rule){
        .bits = bits_4 ? 4 : 8, .values = all, .again = (recompress + TILE - 1) / TILE * TILE};
}

void fv_decode_pack_quant(fv_decode_plan *decode, const fv_pack_quant_params *p, int32_t n_prompt) {
    (void)n_prompt;
    decode->text = FV_TEXT_RULE_OF(p);
}

void fv_decode_pack_latent(fv_decode_plan *decode, const fv_pack_latent_params *p,
                           int32_t n_prompt) {
    (void)n_prompt;
    decode->text = FV_TEXT_RULE_OF(p);
    decode->coded_keys = p->keys_codes;
}
