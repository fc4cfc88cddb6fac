/* GGUF files: reading, files made from metadata, and refusals. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "gguf/texts.h"
#include "tests/support/gguf_file.h"
#include "text/tokenizer.h"

enum { F32 = 0, Q4_0 = 2, IQ1_S = 19 };

static const int64_t embed_shape[] = {6, 64};

/* A model's file without layers. `leave_out`: a key that it lacks, or NULL. */
static void put_model(gguf_file *f, const char *arch, const char *leave_out) {
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {
        {"embedding_length", 64},    {"feed_forward_length", 96},    {"block_count", 2},
        {"attention.head_count", 4}, {"attention.head_count_kv", 2}, {"context_length", 512}};
    static const float embed[6 * 64];
    char key[64];
    gguf_put_text(f, "general.architecture", arch);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, sizes[i].key);
        if (!leave_out || strcmp(leave_out, sizes[i].key) != 0)
            gguf_put_u32(f, key, sizes[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_put_f32(f, key, 1e-5f);
    gguf_put_tensor(f, "token_embd.weight", F32, 2, embed_shape, embed, sizeof embed);
}

static fv_status parsed(gguf_file *f, fv_gguf **g, unsigned char **bytes) {
    size_t n;
    *bytes = gguf_end(f, &n);
    return fv_gguf_parse(*bytes, n, "model.gguf", g);
}

/* Returns the file `name` made from f; NULL: refused with `words`. */
static char *made(gguf_file *f, const char *name, const char *words) {
    fv_gguf *g = NULL;
    unsigned char *bytes;
    char *text = NULL;
    fv_status st = parsed(f, &g, &bytes);
    if (st == FV_OK)
        st = fv_gguf_make_text(&(fv_gguf_set){(const fv_gguf *const *)&g, 1, NULL}, name, &text);
    if (words) {
        cr_assert_neq(st, FV_OK, "it lacks '%s'", words);
        cr_assert(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
        cr_assert(strstr(fv_last_error(), "model.gguf"), "'%s' names no file", fv_last_error());
    } else {
        cr_assert_eq(st, FV_OK, "%s", fv_last_error());
    }
    fv_gguf_free(g);
    free(bytes);
    return text;
}

static void expect_config(gguf_file *f, const char *want) {
    char *text = made(f, "config.json", NULL);
    json_t *a = json_loads(text, 0, NULL), *b = json_loads(want, 0, NULL);
    cr_assert(b);
    cr_assert(json_equal(a, b), "%s", text);
    json_decref(a);
    json_decref(b);
    free(text);
}

Test(gguf, metadata_is_a_config) {
    gguf_file f = {0};
    put_model(&f, "qwen3", NULL);
    gguf_put_f32(&f, "qwen3.rope.freq_base", 1e6f);
    gguf_put_u32(&f, "qwen3.attention.key_length", 24);
    gguf_put_u32(&f, "tokenizer.ggml.eos_token_id", 3);
    gguf_put_u32(&f, "tokenizer.ggml.eot_token_id", 5);
    expect_config(&f,
                  "{\"model_type\": \"qwen3\", \"vocab_size\": 6, \"tie_word_embeddings\": true,"
                  "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
                  "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 24,"
                  "\"max_position_embeddings\": 512, \"rms_norm_eps\": 9.9999997473787516e-06,"
                  "\"rope_theta\": 1000000, \"eos_token_id\": [3, 5], \"bos_token_id\": null}");
}

/* transformers' factors for 8 frequencies, theta 500000, factor 32, of 8192 positions. */
static const float llama3_factors[] = {1.0f, 1.0f, 1.0f, 1.0f, 3.2922621f, 32.0f, 32.0f, 32.0f};

Test(gguf, factors_of_frequencies_are_those_of_llama3) {
    gguf_file f = {0};
    static const int64_t n[] = {8};
    float other[8];
    put_model(&f, "llama", NULL);
    gguf_put_f32(&f, "llama.rope.freq_base", 5e5f);
    gguf_put_tensor(&f, "rope_freqs.weight", F32, 1, n, llama3_factors, sizeof llama3_factors);
    char *text = made(&f, "config.json", NULL);
    cr_assert(strstr(text, "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0"), "%s",
              text);
    free(text);
    memcpy(other, llama3_factors, sizeof other);
    other[4] = 3;
    put_model(&f, "llama", NULL);
    gguf_put_f32(&f, "llama.rope.freq_base", 5e5f);
    gguf_put_tensor(&f, "rope_freqs.weight", F32, 1, n, other, sizeof other);
    made(&f, "config.json", "does not hold the factors of Llama 3.1");
}

Test(gguf, a_factor_of_positions_without_a_type_is_linear) {
    static const char *const keys[] = {"llama.rope.scaling.factor", "llama.rope.scale_linear"};
    for (int i = 0; i < 2; i++) {
        gguf_file f = {0};
        put_model(&f, "llama", NULL);
        gguf_put_f32(&f, keys[i], 4);
        char *text = made(&f, "config.json", NULL);
        cr_assert(strstr(text, "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4.0}"), "%s",
                  text);
        free(text);
        put_model(&f, "llama", NULL);
        gguf_put_f32(&f, keys[i], 1);
        text = made(&f, "config.json", NULL);
        cr_assert_not(strstr(text, "rope_scaling"), "%s", text);
        free(text);
    }
}

Test(gguf, numbers_that_are_not_finite_or_have_no_place_are_refused) {
    static const struct {
        const char *key;
        float value;
        const char *words;
    } bad[] = {
        {"llama.rope.freq_base", NAN, "'llama.rope.freq_base' must be a finite number"},
        {"llama.rope.scaling.factor", INFINITY, "factor' must be a finite number"},
        {"llama.rope.scaling.attn_factor", 2, "'llama.rope.scaling.attn_factor' is 2; 1 alone"},
        {"llama.rope.scaling.yarn_beta_fast", 16, "beta_fast' is 16; 32 alone"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gguf_file f = {0};
        put_model(&f, "llama", NULL);
        gguf_put_f32(&f, bad[i].key, bad[i].value);
        made(&f, "config.json", bad[i].words);
    }
}

Test(gguf, other_models_are_refused_by_name) {
    gguf_file f = {0};
    put_model(&f, "mamba", NULL);
    made(&f, "config.json", "general.architecture is 'mamba'");
    put_model(&f, "clip", NULL);
    made(&f, "config.json", "this one with --mmproj");
    put_model(&f, "qwen2vl", NULL);
    made(&f, "config.json", "'qwen2vl.rope.dimension_sections' must be three numbers");
    put_model(&f, "llama", "block_count");
    made(&f, "config.json", "key 'llama.block_count' is missing");
    put_model(&f, "llama", NULL);
    gguf_put_u32(&f, "llama.expert_count", 8);
    made(&f, "config.json", "experts");
    put_model(&f, "llama", NULL);
    gguf_put_u32(&f, "llama.rope.dimension_count", 8);
    made(&f, "config.json", "a part of each head");
    put_model(&f, "llama", NULL);
    gguf_put_u32(&f, "split.count", 3);
    made(&f, "config.json", "is file 1 of 3 by its metadata, and 1 of 1 by its name");
    put_model(&f, "llama", NULL);
    gguf_put_text(&f, "llama.rope.freq_base", "many");
    made(&f, "config.json", "'llama.rope.freq_base' must be a number");
    gguf_put_text(&f, "general.architecture", "llama");
    made(&f, "config.json", "'token_embd.weight' is missing");
    put_model(&f, "llama", NULL);
    made(&f, "tokenizer.json", "lists of one length");
}

Test(gguf, types_that_are_not_read_are_refused_with_what_to_take) {
    gguf_file f = {0};
    static const int64_t shape[] = {2, 256};
    static const unsigned char block[100];
    gguf_put_tensor(&f, "blk.0.attn_q.weight", IQ1_S, 2, shape, block, sizeof block);
    made(&f, "config.json", "of type IQ1_S");
    gguf_put_tensor(&f, "blk.0.attn_q.weight", 4711, 2, shape, block, sizeof block);
    made(&f, "config.json", "of type number 4711");
    static const int64_t odd[] = {2, 48};
    gguf_put_tensor(&f, "blk.0.attn_q.weight", Q4_0, 2, odd, block, 54);
    made(&f, "config.json", "rows of 48 are not whole blocks");
}

Test(gguf, a_file_cut_off_anywhere_is_refused) {
    gguf_file f = {0};
    fv_gguf *g;
    size_t n;
    put_model(&f, "llama", NULL);
    gguf_begin_list(&f, "tokenizer.ggml.tokens", FV_GGUF_STRING, 2);
    gguf_add_text(&f, "a");
    gguf_add_text(&f, "b");
    unsigned char *bytes = gguf_end(&f, &n);
    cr_assert_eq(fv_gguf_parse(bytes, n, "model.gguf", &g), FV_OK, "%s", fv_last_error());
    fv_gguf_free(g);
    for (size_t k = 0; k < n; k++) {
        unsigned char *cut = malloc(k ? k : 1); /* so that sanitizers see reads after it */
        memcpy(cut, bytes, k);
        cr_assert_eq(fv_gguf_parse(cut, k, "model.gguf", &g), FV_EDATA, "%zu of %zu", k, n);
        free(cut);
    }
    bytes[4] = 1;
    cr_assert_eq(fv_gguf_parse(bytes, n, "model.gguf", &g), FV_EUNSUPPORTED);
    memcpy(bytes + 4, "\0\0\0\3", 4);
    cr_assert_eq(fv_gguf_parse(bytes, n, "model.gguf", &g), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "big-endian"), "%s", fv_last_error());
    memcpy(bytes, "gguf", 4);
    cr_assert_eq(fv_gguf_parse(bytes, n, "model.gguf", &g), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "it is no GGUF file"), "%s", fv_last_error());
    free(bytes);
}

Test(gguf, tensors_have_the_names_of_hugging_face) {
    static const char *const names[][2] = {
        {"token_embd.weight", "model.embed_tokens.weight"},
        {"output_norm.weight", "model.norm.weight"},
        {"output.weight", "lm_head.weight"},
        {"blk.12.attn_q.bias", "model.layers.12.self_attn.q_proj.bias"},
        {"blk.0.attn_k_norm.weight", "model.layers.0.self_attn.k_norm.weight"},
        {"blk.3.ffn_down.weight", "model.layers.3.mlp.down_proj.weight"},
        {"blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"},
        {"v.blk.7.ln2.bias", "vision_tower.vision_model.encoder.layers.7.layer_norm2.bias"},
        {"v.position_embd.weight",
         "vision_tower.vision_model.embeddings.position_embedding.weight"},
        {"mm.2.weight", "multi_modal_projector.linear_2.weight"},
        {"v.deepstack.5.fc1.bias", "visual.deepstack_merger_list.5.linear_fc1.bias"}};
    char out[FV_GGUF_NAME_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cr_assert(fv_gguf_hub_name(names[i][0], out));
        cr_assert_str_eq(out, names[i][1]);
        cr_assert(fv_gguf_own_name(names[i][1], out));
        cr_assert_str_eq(out, names[i][0]);
    }
    cr_assert(!fv_gguf_hub_name("blk.0.ssm_in.weight", out));
    cr_assert(!fv_gguf_hub_name("blk.x.attn_q.weight", out));
    cr_assert(!fv_gguf_hub_name("blk.7", out));
}

/* ---- tokenizers ------------------------------------------------------------------------ */

static json_t *golden(const char *name, char path[4096]) {
    snprintf(path, 4096, "%s/golden/tokenizer/%s.json", FOVEA_TEST_DATA, name);
    json_t *root = json_load_file(path, 0, NULL);
    cr_assert(root, "%s", path);
    return root;
}

/* Writes the metadata that llama.cpp's converter makes from a tokenizer.json. */
static void put_tokenizer(gguf_file *f, const json_t *root, const char *model, const char *pre) {
    const char *text[4096] = {NULL}, *key;
    int32_t type[4096];
    size_t n = 0, i;
    json_t *v, *it = json_object_get(root, "model");
    json_object_foreach(json_object_get(it, "vocab"), key, v) {
        size_t id = (size_t)json_integer_value(v);
        text[id] = key;
        bool byte = strlen(key) == 6 && strncmp(key, "<0x", 3) == 0;
        type[id] = byte ? 6 : 1;
        if (id >= n) n = id + 1;
    }
    json_array_foreach(json_object_get(root, "added_tokens"), i, v) {
        size_t id = (size_t)json_integer_value(json_object_get(v, "id"));
        text[id] = json_string_value(json_object_get(v, "content"));
        type[id] = json_is_true(json_object_get(v, "special")) ? 3 : 4;
        if (id >= n) n = id + 1;
    }
    gguf_put_text(f, "tokenizer.ggml.model", model);
    if (pre) gguf_put_text(f, "tokenizer.ggml.pre", pre);
    gguf_begin_list(f, "tokenizer.ggml.tokens", FV_GGUF_STRING, n);
    for (i = 0; i < n; i++) gguf_add_text(f, text[i]);
    gguf_begin_list(f, "tokenizer.ggml.token_type", FV_GGUF_I32, n);
    gguf_add_bytes(f, type, n * sizeof *type);
    const json_t *merges = json_object_get(it, "merges");
    size_t n_merge = json_array_size(merges);
    if (pre) {
        gguf_begin_list(f, "tokenizer.ggml.merges", FV_GGUF_STRING, n_merge);
        for (i = 0; i < n_merge; i++) {
            const json_t *m = json_array_get(merges, i);
            char line[256];
            if (json_is_string(m))
                snprintf(line, sizeof line, "%s", json_string_value(m));
            else
                snprintf(line, sizeof line, "%s %s", json_string_value(json_array_get(m, 0)),
                         json_string_value(json_array_get(m, 1)));
            gguf_add_text(f, line);
        }
        return;
    }
    /* A token's score gives its place among the merges. */
    gguf_begin_list(f, "tokenizer.ggml.scores", FV_GGUF_F32, n);
    for (i = 0; i < n; i++) {
        float score = -1e6f;
        for (size_t k = 0; k < n_merge; k++) {
            const json_t *m = json_array_get(merges, k);
            char whole[256];
            if (json_is_string(m)) {
                const char *line = json_string_value(m), *space = strchr(line, ' ');
                snprintf(whole, sizeof whole, "%.*s%s", (int)(space - line), line, space + 1);
            } else {
                snprintf(whole, sizeof whole, "%s%s", json_string_value(json_array_get(m, 0)),
                         json_string_value(json_array_get(m, 1)));
            }
            if (strcmp(whole, text[i]) != 0) continue;
            score = -(float)k;
            break;
        }
        gguf_add_bytes(f, &score, sizeof score);
    }
}

static void assert_same_ids(const fv_tokenizer *a, const fv_tokenizer *b, const char *text,
                            size_t n) {
    int32_t *x, *y, n_x, n_y;
    cr_assert_eq(fv_tokenizer_encode(a, text, n, false, &x, &n_x), FV_OK);
    cr_assert_eq(fv_tokenizer_encode(b, text, n, false, &y, &n_y), FV_OK);
    cr_assert(n_x == n_y && memcmp(x, y, (size_t)n_x * sizeof *x) == 0, "%.*s", (int)n, text);
    free(x);
    free(y);
}

static void same_tokenizer(const char *name, const char *model, const char *pre) {
    gguf_file f = {0};
    char path[4096], *corpus;
    size_t n;
    fv_tokenizer *own, *tok;
    json_t *root = golden(name, path);
    put_tokenizer(&f, root, model, pre);
    if (strcmp(name, "gemma") == 0) gguf_put_bool(&f, "tokenizer.ggml.add_space_prefix", 0);
    json_decref(root);
    char *text = made(&f, "tokenizer.json", NULL), *json;
    cr_assert_eq(fv_tokenizer_parse(text, strlen(text), name, &tok), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_file_read(path, 1 << 24, &json, &n), FV_OK);
    cr_assert_eq(fv_tokenizer_parse(json, n, path, &own), FV_OK, "%s", fv_last_error());
    snprintf(path, sizeof path, "%s/golden/tokenizer/corpus.txt", FOVEA_TEST_DATA);
    cr_assert_eq(fv_file_read(path, 1 << 24, &corpus, &n), FV_OK);
    cr_assert_eq(fv_tokenizer_vocab(tok), fv_tokenizer_vocab(own));
    for (size_t at = 0; at < n;) {
        size_t line = strcspn(corpus + at, "\n");
        assert_same_ids(tok, own, corpus + at, line);
        at += line + 1;
    }
    assert_same_ids(tok, own, corpus, n);
    fv_tokenizer_free(own);
    fv_tokenizer_free(tok);
    free(corpus);
    free(json);
    free(text);
}

Test(gguf, byte_level_tokenizers_give_the_ids_of_tokenizer_json) {
    same_tokenizer("llama3", "gpt2", "llama-bpe");
    same_tokenizer("qwen2", "gpt2", "qwen2");
    same_tokenizer("smollm2", "gpt2", "smollm");
    same_tokenizer("tekken", "gpt2", "tekken");
    same_tokenizer("gpt2", "gpt2", "gpt-2");
    same_tokenizer("o200k", "gpt2", "gpt-4o");
}

/* Qwen3.5's words are Qwen2's, with marks among the letters. */
Test(gguf, marks_belong_to_words_in_qwen35) {
    static const char *const pre[] = {"qwen2", "qwen35"};
    static const char *const want[] = {"]?\\\\p{L}+|", "]?[\\\\p{L}\\\\p{M}]+|"};
    char path[4096];
    for (int i = 0; i < 2; i++) {
        gguf_file f = {0};
        json_t *root = golden("qwen2", path);
        put_tokenizer(&f, root, "gpt2", pre[i]);
        json_decref(root);
        char *text = made(&f, "tokenizer.json", NULL);
        cr_assert(strstr(text, want[i]), "%.900s", strstr(text, "Regex"));
        free(text);
    }
}

Test(gguf, sentencepiece_tokenizers_give_the_ids_of_tokenizer_json) {
    same_tokenizer("llama2", "llama", NULL);
    same_tokenizer("gemma", "llama", NULL);
}

static void put_vocab(gguf_file *f, size_t n, const char *const *token, const int32_t *type,
                      const float *score) {
    gguf_put_text(f, "tokenizer.ggml.model", "llama");
    gguf_begin_list(f, "tokenizer.ggml.tokens", FV_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) gguf_add_text(f, token[i]);
    gguf_begin_list(f, "tokenizer.ggml.token_type", FV_GGUF_I32, n);
    gguf_add_bytes(f, type, n * sizeof *type);
    if (!score) return;
    gguf_begin_list(f, "tokenizer.ggml.scores", FV_GGUF_F32, n);
    gguf_add_bytes(f, score, n * sizeof *score);
}

/* The merges are those that generate_merges in transformers gives for this vocabulary. */
Test(gguf, merges_come_from_scores) {
    static const char *const token[] = {"<unk>", "<s>", "a", "b",  "c", "ab",
                                        "bc",    "abc", "é", "éa", "<s"};
    static const int32_t type[] = {2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const float score[] = {0, 0, -9, -9, -9, -2, -1, -3, -9, -2, -9};
    static const char want[] =
        "[[\"b\",\"c\"],[\"a\",\"b\"],[\"é\",\"a\"],[\"ab\",\"c\"],[\"a\",\"bc\"]]";
    gguf_file f = {0};
    put_vocab(&f, sizeof token / sizeof *token, token, type, score);
    gguf_put_u32(&f, "tokenizer.ggml.bos_token_id", 1);
    char *text = made(&f, "tokenizer.json", NULL);
    json_t *root = json_loads(text, 0, NULL), *a = json_loads(want, 0, NULL);
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    cr_assert(json_equal(a, merges), "%s", text);
    cr_assert(strstr(text, "TemplateProcessing") && strstr(text, "\"unk_token\":\"<unk>\""), "%s",
              text);
    json_decref(a);
    json_decref(root);
    free(text);
}

Test(gguf, chat_template_and_special_tokens_are_a_tokenizer_config) {
    static const char *const token[] = {"<s>", "</s>", "x"};
    static const int32_t type[] = {3, 3, 1};
    gguf_file f = {0};
    put_vocab(&f, 3, token, type, NULL);
    gguf_put_text(&f, "tokenizer.chat_template", "{{ bos_token }}");
    gguf_put_u32(&f, "tokenizer.ggml.bos_token_id", 0);
    gguf_put_u32(&f, "tokenizer.ggml.eos_token_id", 1);
    char *text = made(&f, "tokenizer_config.json", NULL);
    cr_assert_str_eq(
        text,
        "{\"chat_template\":\"{{ bos_token }}\",\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    free(text);
}

/* Without merges a text would be single bytes; the cuts of a token take the square of its length. */
Test(gguf, missing_merges_and_endless_tokens_are_refused) {
    char endless[3000] = "";
    const char *const token[] = {"a", endless};
    static const int32_t type[] = {1, 1};
    static const float score[] = {0, 0};
    gguf_file f = {0};
    memset(endless, 'a', sizeof endless - 1);
    put_vocab(&f, 2, token, type, score);
    made(&f, "tokenizer.json", "token 1 has 2999 bytes; at most 2048 are possible");
    gguf_put_text(&f, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(&f, "tokenizer.ggml.pre", "gpt-2");
    put_vocab(&f, 2, token, type, NULL);
    made(&f, "tokenizer.json", "key 'tokenizer.ggml.merges' is missing");
}

Test(gguf, other_tokenizers_are_refused_by_name) {
    static const char *const token[] = {"<s>", "a", "\xff"};
    static const int32_t type[] = {3, 1, 1}, wrong[] = {3, 9};
    static const float score[] = {0, 1};
    gguf_file f = {0};
    gguf_put_text(&f, "tokenizer.ggml.pre", "deepseek-llm");
    put_vocab(&f, 2, token, type, NULL);
    made(&f, "tokenizer.json", "scores' must have a number for each token");
    put_vocab(&f, 2, token, wrong, score);
    made(&f, "tokenizer.json", "token 1 has a type that is not known");
    put_vocab(&f, 3, token, type, NULL);
    made(&f, "tokenizer.json", "token 2 is not UTF-8");
    put_vocab(&f, 2, token, type, score);
    gguf_put_u32(&f, "tokenizer.ggml.bos_token_id", 2);
    made(&f, "tokenizer.json", "is 2, and there are 2 tokens");
    gguf_put_text(&f, "tokenizer.ggml.model", "bert");
    put_vocab(&f, 2, token, type, score);
    made(&f, "tokenizer.json", "tokenizer.ggml.model is 'bert'");
    gguf_put_text(&f, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(&f, "tokenizer.ggml.pre", "deepseek-llm");
    put_vocab(&f, 2, token, type, score);
    made(&f, "tokenizer.json", "tokenizer.ggml.pre is 'deepseek-llm'");
}
