/* A tokenizer for a synthetic checkpoint: Llama-2's kind (BPE over characters, byte fallback,
 * spaces as U+2581), with an invented vocabulary that behaves like a real one.
 *
 *   ids   0..2       <unk> <s> </s>
 *         3..258     <0x00> .. <0xFF>
 *         259..      single characters, then tokens made by merges
 *                    special tokens of the family
 *         image      the image token, with its id in config.json
 *         image + 1  the video token, if the family has one
 *         then       <pad>, if there is an embedding for it; later ones are padding
 *
 * Merges are pairs of letters, then of pairs, most frequent letters of English first, until the
 * ids before <image> are used up: lower-case text becomes a token per three or four letters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "model/synth/internal.h"

enum { PATH_CAP = 4096, TOKEN_CAP = 32, TEMPLATE_CAP = 1024, N_LETTER = 26 };

static const char letters[] = "etaoinshrdlcumwfgypbvkjxqz";
static const char space[] = "\xE2\x96\x81"; /* U+2581 */

/* llava-hf's template, images before text, cut at the image's placeholder. */
#define LLAVA_TEMPLATE                                                                             \
    "{% for message in messages %}"                                                                \
    "{% if message['role'] != 'system' %}{{ message['role'].upper() + ': ' }}{% endif %}"          \
    "{% for part in message['content'] if part['type'] != 'text' %}{{ '",                          \
        "' }}{% endfor %}"                                                                         \
        "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] + ' ' }}"   \
        "{% endfor %}"                                                                             \
        "{% endfor %}"                                                                             \
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"

/* Idefics3's template without <|im_start|>, which this tokenizer lacks. */
#define IDEFICS_TEMPLATE                                                                           \
    "{% for message in messages %}{{ message['role'] | capitalize }}"                              \
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"    \
    "{% for line in message['content'] %}"                                                         \
    "{% if line['type'] == 'text' %}{{ line['text'] }}"                                            \
    "{% elif line['type'] == 'image' %}{{ '",                                                      \
        "' }}{% endif %}"                                                                          \
        "{% endfor %}<end_of_utterance>\n{% endfor %}"                                             \
        "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"

/* Idefics3's image tokens: tiles of up to GRID x GRID. */
enum { GRID = 6, N_SPECIAL = 3 + GRID * GRID };
#define IDEFICS                                                                                    \
    .image = {"<image>", "image_token"}, .shown = "<image>", .template = {IDEFICS_TEMPLATE},       \
    .n_ahead = N_SPECIAL,                                                                          \
    .ahead = {{.token = "<fake_token_around_image>"},                                              \
              {.token = "<global-img>"},                                                           \
              {.token = "<end_of_utterance>"}}
#define LLAVA                                                                                      \
    .image = {"<image>", "image_token"}, .shown = "<image>\\n", .template = {LLAVA_TEMPLATE}
#define QWEN_VL                                                                                    \
    .image_processor = "Qwen2VL", .image = {"<|image_pad|>", "image_token"},                       \
    .shown = "<|vision_start|>' + ('<|video_pad|>' if part['type'] == 'video' else "               \
             "'<|image_pad|>') + '<|vision_end|>",                                                 \
    .template = {LLAVA_TEMPLATE}, .n_ahead = 2,                                                    \
    .ahead = {{.token = "<|vision_start|>"}, {.token = "<|vision_end|>"}},                         \
    .video = {"<|video_pad|>", "video_token"}, .reads_video = true
#define GEMMA4                                                                                     \
    .image = {"<|image|>", "image_token"}, .shown = "<|image|>", .template = {LLAVA_TEMPLATE},     \
    .n_ahead = 4,                                                                                  \
    .ahead = {{"<|image>", "boi_token"},                                                           \
              {"<image|>", "eoi_token"},                                                           \
              {"<|audio>", "boa_token"},                                                           \
              {"<audio|>", "eoa_token"}},                                                          \
    .video = {"<|video|>", "video_token"}, .reads_video = true
#define GLM                                                                                        \
    .image = {"<|image|>", "image_token"}, .shown = "<|begin_of_image|><|image|><|end_of_image|>", \
    .template = {LLAVA_TEMPLATE}, .n_ahead = 4,                                                    \
    .ahead = {{.token = "<|begin_of_video|>"},                                                     \
              {.token = "<|end_of_video|>"},                                                       \
              {.token = "<|begin_of_image|>"},                                                     \
              {.token = "<|end_of_image|>"}},                                                      \
    .video = {"<|video|>", "video_token"}, .reads_video = true
#define VIDEO .video = {"<video>", "video_token"}

static const fv_synth_form families[] = {
    {.family = "llava", .image_processor = "CLIP", LLAVA},
    {.family = "llava_next", LLAVA},
    {.family = "mobilevlm", .image_processor = "CLIP", LLAVA},
    {.family = "video_llava",
     .image = {"<image>", "image_token"},
     .shown = "' + ('<video>' if part['type'] == 'video' else '<image>') + '\\n",
     .template = {LLAVA_TEMPLATE},
     VIDEO,
     .reads_video = true},
    {.family = "llava_onevision", LLAVA, VIDEO, .reads_video = true},
    {.family = "idefics3", IDEFICS},
    {.family = "smolvlm", IDEFICS, .reads_video = true},
    {.family = "internvl",
     .image_processor = "GotOcr2",
     .image = {"<IMG_CONTEXT>", "context_image_token"},
     .shown = "<IMG_CONTEXT>\\n",
     .template = {LLAVA_TEMPLATE},
     .n_ahead = 2,
     .ahead = {{"<img>", "start_image_token"}, {"</img>", "end_image_token"}},
     VIDEO,
     .reads_video = true},
    {.family = "internvl_chat",
     .classes = "InternVL",
     .image_processor = "CLIP",
     .image = {"<IMG_CONTEXT>", "context_image_token"},
     .shown = "<IMG_CONTEXT>\\n",
     .template = {LLAVA_TEMPLATE},
     .n_ahead = 2,
     .ahead = {{"<img>", "start_image_token"}, {"</img>", "end_image_token"}},
     VIDEO,
     .reads_video = true},
    {.family = "mistral3",
     .classes = "Pixtral",
     .image = {"[IMG]", "image_token"},
     .shown = "[IMG]\\n",
     .template = {LLAVA_TEMPLATE},
     .n_ahead = 2,
     .ahead = {{.token = "[IMG_BREAK]"}, {.token = "[IMG_END]"}}},
    {.family = "pixtral",
     .classes = "Pixtral",
     .image = {"[IMG]", "image_token"},
     .shown = "[IMG]\\n",
     .template = {LLAVA_TEMPLATE},
     .n_ahead = 2,
     .ahead = {{.token = "[IMG_BREAK]"}, {.token = "[IMG_END]"}}},
    {.family = "paddleocr_vl",
     .image = {"<|IMAGE_PLACEHOLDER|>", "image_token"},
     .shown = "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
     .template = {LLAVA_TEMPLATE},
     .n_ahead = 2,
     .ahead = {{.token = "<|IMAGE_START|>"}, {.token = "<|IMAGE_END|>"}}},
    {.family = "lighton_ocr",
     .image_processor = "Pixtral",
     .image = {"<|image_pad|>", "image_token"},
     .shown = "<|image_pad|>",
     .template = {LLAVA_TEMPLATE},
     .n_ahead = 2,
     .ahead = {{"<|vision_pad|>", "image_break_token"}, {"<|vision_end|>", "image_end_token"}}},
    {.family = "qwen2_vl", QWEN_VL, .video_processor = "Qwen2VL"},
    {.family = "qwen2_5_vl", QWEN_VL, .video_processor = "Qwen2VL"},
    {.family = "qwen3_vl", QWEN_VL},
    {.family = "qwen3_vl_moe", QWEN_VL, .classes = "Qwen3VL"},
    {.family = "qwen3_5", QWEN_VL, .classes = "Qwen3VL"},
    {.family = "qwen3_5_moe", QWEN_VL, .classes = "Qwen3VL"},
    {.family = "glm4v", GLM, .classes = "Glm4v"},
    {.family = "glm46v", GLM, .classes = "Glm46V"},
    {.family = "glm4v_moe", GLM, .classes = "Glm4v"},
    {.family = "glm_ocr", GLM, .classes = "Glm46V"},
    {.family = "gemma3",
     .image = {"<image_soft_token>", "image_token"},
     .shown = "<start_of_image>",
     .template = {LLAVA_TEMPLATE},
     .n_ahead = 2,
     .ahead = {{"<start_of_image>", "boi_token"}, {"<end_of_image>", "eoi_token"}}},
    {.family = "gemma4", GEMMA4},
    {.family = "gemma4_unified", GEMMA4},
    {.family = "shieldgemma2",
     .classes = "Gemma3",
     .image = {"<image_soft_token>", "image_token"},
     .shown = "<start_of_image>",
     .template = {LLAVA_TEMPLATE},
     .n_ahead = 2,
     .ahead = {{"<start_of_image>", "boi_token"}, {"<end_of_image>", "eoi_token"}}},
};

const fv_synth_form *fv_synth_form_of(const fv_model_config *cfg) {
    static const fv_synth_form none, llava = {LLAVA};
    for (size_t i = 0; cfg->has_vision && i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].family, cfg->family->name)) return &families[i];
    return cfg->has_vision ? &llava : &none; /* the family has no row */
}

void fv_synth_class(const fv_model_config *cfg, const char *kind, char out[FV_SYNTH_CLASS_MAX]) {
    const fv_synth_form *f = fv_synth_form_of(cfg);
    const char *architecture = cfg->family->architecture;
    const char *end = strstr(architecture, "ForConditionalGeneration");
    const char *first = f->classes;
    int n = end ? (int)(end - architecture) : 0;
    if (f->image_processor && !strcmp(kind, "ImageProcessor")) first = f->image_processor;
    if (f->video_processor && !strcmp(kind, "VideoProcessor")) first = f->video_processor;
    if (first)
        snprintf(out, FV_SYNTH_CLASS_MAX, "%s%s", first, kind);
    else
        snprintf(out, FV_SYNTH_CLASS_MAX, "%.*s%s", n, architecture, kind);
}

/* Special token i ahead of the image token. */
static const char *ahead_at(const fv_synth_form *f, int32_t i, char out[TOKEN_CAP]) {
    if (i < FV_SYNTH_AHEAD_MAX && f->ahead[i].token) return f->ahead[i].token;
    snprintf(out, TOKEN_CAP, "<row_%d_col_%d>", (i - 3) / GRID + 1, (i - 3) % GRID + 1);
    return out;
}

int32_t fv_synth_text_ids(const fv_model_config *cfg) {
    return cfg->has_vision ? cfg->image_token - fv_synth_form_of(cfg)->n_ahead : cfg->text.vocab;
}

int32_t fv_synth_pad_id(const fv_model_config *cfg) {
    int32_t id = cfg->image_token + (fv_synth_form_of(cfg)->video.token ? 2 : 1);
    return cfg->has_vision && id < cfg->text.vocab ? id : -1;
}

/* Writes both sides of merge i; false past the last. Every i gives another token, and both sides
 * are single characters or tokens of earlier merges. With l a letter and _ the space sign, the
 * forms are, in this order: _ l, l l, _ ll, ll l, _ll l, ll ll, _ll ll. */
static bool merge_at(int64_t i, char left[TOKEN_CAP], char right[TOKEN_CAP]) {
    static const struct {
        int n_left, n_right;
        bool spaced;
    } forms[] = {{0, 1, true}, {1, 1, false}, {0, 2, true}, {2, 1, false},
                 {2, 1, true}, {2, 2, false}, {2, 2, true}};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        int n = forms[f].n_left + forms[f].n_right;
        int64_t count = 1;
        for (int k = 0; k < n; k++) count *= N_LETTER;
        if (i >= count) {
            i -= count;
            continue;
        }
        char word[8] = {0};
        for (int k = n; k-- > 0; i /= N_LETTER) word[k] = letters[i % N_LETTER];
        snprintf(left, TOKEN_CAP, "%s%.*s", forms[f].spaced ? space : "", forms[f].n_left, word);
        snprintf(right, TOKEN_CAP, "%s", word + forms[f].n_left);
        return true;
    }
    return false;
}

/* Writes single character i; false past the last. */
static bool single_at(int32_t i, bool only_ascii, char out[TOKEN_CAP]) {
    static const char rest[] = "0123456789.,:;!?'\"()-_/*+=<>[]{}@#$%&|~^`\\";
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0xC0, 0xFF}, {0x3B1, 0x3C9}, {0x430, 0x44F}}; /* Latin, Greek, Cyrillic */
    if (i == 0) return snprintf(out, TOKEN_CAP, "%s", space) > 0;
    i--;
    if (i < N_LETTER) return snprintf(out, TOKEN_CAP, "%c", letters[i]) > 0;
    i -= N_LETTER;
    if (i < N_LETTER) return snprintf(out, TOKEN_CAP, "%c", letters[i] - 'a' + 'A') > 0;
    i -= N_LETTER;
    if (i < (int32_t)strlen(rest)) return snprintf(out, TOKEN_CAP, "%c", rest[i]) > 0;
    i -= (int32_t)strlen(rest);
    for (size_t r = 0; !only_ascii && r < sizeof ranges / sizeof *ranges; r++) {
        int32_t n = (int32_t)(ranges[r].last - ranges[r].first + 1);
        if (i < n) {
            uint32_t c = ranges[r].first + (uint32_t)i;
            return snprintf(out, TOKEN_CAP, "%c%c", (int)(0xC0 | c >> 6),
                            (int)(0x80 | (c & 0x3F))) > 0;
        }
        i -= n;
    }
    return false;
}

/* Fills vocab and merges with ids 0 .. room - 1, fewer when the merges run out. */
static void fill_vocab(int32_t room, json_t *vocab, json_t *merges) {
    static const char *const specials[] = {"<unk>", "<s>", "</s>"};
    int32_t id = 0;
    for (; id < 3; id++) json_object_set_new(vocab, specials[id], json_integer(id));
    char token[2 * TOKEN_CAP];
    for (int b = 0; b < 256; b++, id++) {
        snprintf(token, sizeof token, "<0x%02X>", (unsigned)b);
        json_object_set_new(vocab, token, json_integer(id));
    }
    bool small = room < 1024;
    for (int32_t i = 0; id < room && single_at(i, small, token); i++, id++)
        json_object_set_new(vocab, token, json_integer(id));
    char left[TOKEN_CAP], right[TOKEN_CAP];
    for (int64_t i = 0; id < room && merge_at(i, left, right); i++, id++) {
        snprintf(token, sizeof token, "%s%s", left, right);
        json_object_set_new(vocab, token, json_integer(id));
        snprintf(token, sizeof token, "%s %s", left, right);
        json_array_append_new(merges, json_string(token));
    }
}

static json_t *added_token(int32_t id, const char *content) {
    return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", content,
                     "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

static json_t *added_tokens(const fv_model_config *cfg) {
    json_t *list = json_array();
    json_array_append_new(list, added_token(0, "<unk>"));
    json_array_append_new(list, added_token(1, "<s>"));
    json_array_append_new(list, added_token(2, "</s>"));
    const fv_synth_form *f = fv_synth_form_of(cfg);
    char name[TOKEN_CAP];
    for (int32_t i = 0; i < f->n_ahead; i++)
        json_array_append_new(list, added_token(fv_synth_text_ids(cfg) + i, ahead_at(f, i, name)));
    if (f->image.token) json_array_append_new(list, added_token(cfg->image_token, f->image.token));
    if (f->video.token)
        json_array_append_new(list, added_token(cfg->image_token + 1, f->video.token));
    if (fv_synth_pad_id(cfg) >= 0)
        json_array_append_new(list, added_token(fv_synth_pad_id(cfg), "<pad>"));
    return list;
}

/* Adds bos like Llama, "<s> A" and "<s> A <s> B"; null for a family without bos. */
static json_t *post_processor(const fv_model_config *cfg) {
    if (cfg->text.bos < 0) return json_null();
    return json_loads("{\"type\": \"TemplateProcessing\","
                      " \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}},"
                      " {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],"
                      " \"pair\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}},"
                      " {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},"
                      " {\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 1}},"
                      " {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],"
                      " \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1],"
                      " \"tokens\": [\"<s>\"]}}}",
                      0, NULL);
}

static json_t *tokenizer_json(const fv_model_config *cfg) {
    json_t *vocab = json_object(), *merges = json_array();
    fill_vocab(fv_synth_text_ids(cfg), vocab, merges);
    json_t *normalizer = json_loads("{\"type\": \"Sequence\", \"normalizers\": ["
                                    "{\"type\": \"Prepend\", \"prepend\": \"\\u2581\"},"
                                    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"},"
                                    " \"content\": \"\\u2581\"}]}",
                                    0, NULL);
    json_t *decoder =
        json_loads("{\"type\": \"Sequence\", \"decoders\": ["
                   "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\\u2581\"},"
                   " \"content\": \" \"},"
                   "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"},"
                   "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}",
                   0, NULL);
    json_t *model = json_pack("{s:s, s:n, s:s, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
                              "dropout", "unk_token", "<unk>", "continuing_subword_prefix",
                              "end_of_word_suffix", "fuse_unk", 1, "byte_fallback", 1,
                              "ignore_merges", 0, "vocab", vocab, "merges", merges);
    return json_pack("{s:s, s:n, s:n, s:o, s:o, s:n, s:o, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added_tokens(cfg), "normalizer",
                     normalizer, "pre_tokenizer", "post_processor", post_processor(cfg), "decoder",
                     decoder, "model", model);
}

/* PreTrainedTokenizerFast reads tokenizer.json unchanged; Llama's class would rebuild the
 * normalizer. */
static json_t *tokenizer_config_json(const fv_model_config *cfg) {
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:i}", "tokenizer_class", "PreTrainedTokenizerFast",
        "bos_token", "<s>", "eos_token", "</s>", "unk_token", "<unk>", "pad_token",
        fv_synth_pad_id(cfg) >= 0 ? "<pad>" : "<unk>", "clean_up_tokenization_spaces", 0,
        "padding_side", "left", "model_max_length", cfg->text.max_position);
    if (!cfg->has_vision) return j;
    const fv_synth_form *f = fv_synth_form_of(cfg);
    char type[FV_SYNTH_CLASS_MAX];
    fv_synth_class(cfg, "Processor", type);
    json_t *extra = json_pack("{s:s}", f->image.key, f->image.token);
    for (int32_t i = 0; i < FV_SYNTH_AHEAD_MAX; i++)
        if (f->ahead[i].key)
            json_object_set_new(extra, f->ahead[i].key, json_string(f->ahead[i].token));
    if (f->video.key) json_object_set_new(extra, f->video.key, json_string(f->video.token));
    json_object_set_new(j, "processor_class", json_string(type));
    json_object_set_new(j, f->image.key, json_string(f->image.token));
    json_object_set_new(j, "extra_special_tokens", extra);
    return j;
}

fv_status fv_synth_write_tokenizer(const char *dir, const fv_model_config *cfg) {
    FV_TRY(fv_synth_write_json(dir, "tokenizer.json", tokenizer_json(cfg)));
    FV_TRY(fv_synth_write_json(dir, "tokenizer_config.json", tokenizer_config_json(cfg)));
    if (!cfg->has_vision) return FV_OK;
    char path[PATH_CAP], text[TEMPLATE_CAP];
    const fv_synth_form *f = fv_synth_form_of(cfg);
    FV_TRY(fv_path_join(dir, "chat_template.jinja", path, sizeof path));
    snprintf(text, sizeof text, "%s%s%s", f->template[0], f -> shown, f -> template[1]);
    return fv_file_write(path, text, strlen(text));
}
