/* Prints reports. */
#include "cli/client/report.h"

#include <inttypes.h>
#include <string.h>

static json_t *bytes_json(const fv_report *r) {
    return json_pack("{s:I, s:I, s:{s:I, s:I}, s:{s:I, s:I, s:I}}", "raw", (json_int_t)r->bytes_raw,
                     "bound", (json_int_t)r->bytes_bound, "resident_start", "visual",
                     (json_int_t)r->bytes_visual, "text", (json_int_t)r->bytes_text, "resident_end",
                     "visual", (json_int_t)r->bytes_visual_end, "text",
                     (json_int_t)r->bytes_text_end, "tables", (json_int_t)r->bytes_tables_end);
}

static json_t *rows_json(const fv_report *r) {
    json_t *rows = json_array();
    for (int32_t l = 0; l < r->n_layer; l++)
        json_array_append_new(rows, json_integer(r->visual_tokens[l]));
    return rows;
}

static json_t *held_json(const fv_report *r) {
    json_t *rows = json_array();
    for (int32_t l = 0; l < r->n_layer; l++)
        json_array_append_new(rows, json_integer(r->account.visual_tokens_held[l]));
    return rows;
}

static json_t *digest_json(const fv_report *r) {
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_generated; i++) {
        char hex[17];
        snprintf(hex, sizeof hex, "%016" PRIx64, r->digest[i]);
        json_array_append_new(list, json_string(hex));
    }
    return list;
}

static json_t *notes_json(const char note[FV_N_STAGE][FV_PLAN_NOTE_MAX]) {
    json_t *list = json_array();
    for (int s = 0; s < FV_N_STAGE; s++)
        if (note[s][0]) json_array_append_new(list, json_string(note[s]));
    return list;
}

static json_t *mapped_json(const fv_report *r) {
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_mapped; i++) {
        const fv_report_mapped *m = &r->mapped[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:i, s:s}", "stage", m->stage,
                                              "parameter", m->param, "written", m->written, "layer",
                                              m->layer, "mapping", m->mapping));
    }
    return list;
}

static json_t *stages_json(const fv_report *r) {
    json_t *list = json_array();
    for (int s = 0; s < FV_N_STAGE; s++) {
        const fv_stage_stats_stage *a = &r->account.stage[s];
        if (a->n_layer == 0) continue;
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:I, s:i}", "stage", fv_stage_name((fv_stage)s),
                                        "entries_in", (json_int_t)a->entries_in, "entries_out",
                                        (json_int_t)a->entries_out, "layers", a->n_layer));
    }
    return list;
}

static json_t *packed_json(const fv_report *r) {
    const fv_pack_report *p = &r->packed;
    json_t *layers = json_array();
    for (int32_t l = 0; l < p->n_layer; l++) {
        const fv_packed_layer *at = &p->layer[l];
        json_t *layer =
            json_pack("{s:[i, i], s:i, s:[f, f], s:i, s:f}", "rank", at->rank[0], at->rank[1],
                      "code_bits", at->code, "error", (double)at->error[0], (double)at->error[1],
                      "rank_text", at->rank_text, "error_text", (double)at->error_text);
        if (layer && at->merged) json_object_set_new(layer, "merged", json_true());
        if (layer && at->code_text)
            json_object_set_new(layer, "text_bits", json_integer(at->code_text));
        if (layer && at->row_bits)
            json_object_set_new(layer, "row_bits", json_integer(at->row_bits));
        if (layer && at->n_own)
            json_object_set_new(layer, "own_directions", json_integer(at->n_own));
        if (layer && at->code_keys)
            json_object_set_new(layer, "key_bits", json_integer(at->code_keys));
        json_array_append_new(layers, layer);
    }
    return json_pack("{s:I, s:I, s:I, s:f, s:o}", "bytes_raw", (json_int_t)p->bytes_raw, "bytes",
                     (json_int_t)p->bytes, "bytes_unsent", (json_int_t)p->unsent, "seconds",
                     p->seconds, "layers", layers);
}

static json_t *recompressed_json(const fv_recompress_report *r) {
    return json_pack("{s:I, s:i, s:I, s:f, s:f}", "tokens", (json_int_t)r->rows, "layers",
                     r->n_layer, "bytes_freed", (json_int_t)r->bytes, "error", (double)r->error,
                     "seconds", r->seconds);
}

static json_t *handoff_json(const fv_report *r) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "transport", r->transport,
                     "bytes_sent", (json_int_t)r->bytes_sent, "sections", (json_int_t)r->sections,
                     "frames", (json_int_t)r->frames, "bytes_pair", (json_int_t)r->bytes_pair,
                     "fallbacks", (json_int_t)r->n_fallback, "tokens_unsent",
                     (json_int_t)r->tokens_unsent, "bytes_unsent", (json_int_t)r->bytes_unsent);
}

fv_report_source fv_report_source_local(const fv_local *local) {
    return (fv_report_source){.checkpoint = fv_local_fingerprint(local),
                              .isa = fv_local_isa(local)};
}

json_t *fv_report_json(const fv_report_source *source, const fv_report *r) {
    json_t *json = json_pack(
        "{s:s, s:s, s:s*, s:{s:i, s:i, s:i, s:i, s:i, s:i}, s:o, s:I, s:o, s:o, s:{s:f, s:f, s:f, "
        "s:f, "
        "s:f, "
        "s:f}, s:o, s:o}",
        "checkpoint", source->checkpoint, "policy", r->policy[0] ? r->policy : "exact", "isa",
        source->isa, "tokens", "prompt", r->n_prompt, "visual", r->n_visual, "encoded",
        r->n_encoded, "text", r->n_text, "images", r->n_image, "generated", r->n_generated,
        "visual_tokens", rows_json(r), "entries_evicted", (json_int_t)r->entries_evicted, "bytes",
        bytes_json(r), "handoff", handoff_json(r), "seconds", "preprocess", r->s_preprocess,
        "vision", r->s_vision, "prefill", r->s_prefill, "first_token", r->s_first_token, "handoff",
        r->s_handoff, "decode", r->s_decode, "bypassed", notes_json(r->note), "digests",
        digest_json(r));
    if (json) json_object_set_new(json, "visual_tokens_held", held_json(r));
    if (json) json_object_set_new(json, "images_cached", json_integer(r->n_image_cached));
    if (json)
        json_object_set_new(json, "cached",
                            json_pack("{s:i, s:i, s:f}", "tokens", r->n_prompt_cached, "from_disk",
                                      r->n_from_disk, "seconds_saved", r->s_saved));
    if (json)
        json_object_set_new(json, "drafts",
                            json_pack("{s:I, s:I, s:f}", "tokens", (json_int_t)r->n_drafted, "kept",
                                      (json_int_t)r->n_drafts_kept, "seconds_saved",
                                      r->s_drafts_saved));
    if (json) json_object_set_new(json, "stages", stages_json(r));
    if (json) json_object_set_new(json, "decided", notes_json(r->decided));
    if (json) json_object_set_new(json, "mapped", mapped_json(r));
    if (json && r->recompressed.rows)
        json_object_set_new(json, "recompressed", recompressed_json(&r->recompressed));
    if (json && r->packed.bytes) json_object_set_new(json, "packed", packed_json(r));
    if (json && source->prefill_worker)
        json_object_set_new(json, "workers",
                            json_pack("{s:s, s:s}", "prefill", source->prefill_worker, "decode",
                                      source->decode_worker));
    return json;
}

/* Prints "layer 3" or "layers 0-11", the last one included. */
static void print_layers(FILE *f, int32_t first, int32_t last) {
    if (first == last)
        fprintf(f, "layer %d", first);
    else
        fprintf(f, "layers %d-%d", first, last);
}

/* Groups layers with the same number: "layers 0-15: 576, layers 16-31: 0". */
static void print_each(FILE *f, const int32_t *number, int32_t n_layer) {
    for (int32_t l = 0, end; l < n_layer; l = end) {
        for (end = l + 1; end < n_layer && number[end] == number[l]; end++) {
        }
        fputs(l ? ", " : "", f);
        print_layers(f, l, end - 1);
        fprintf(f, ": %d", number[l]);
    }
    fputc('\n', f);
}

/* Prints tokens processed and held separately: `select` may drop entries of a layer that processed
 * them, and each KV head holds its own. */
static void print_visual(FILE *f, const fv_report *r) {
    if (r->n_visual == 0) return;
    fputs("visual   tokens processed: ", f);
    print_each(f, r->visual_tokens, r->n_layer);
    fputs("         tokens held (mean over KV heads): ", f);
    print_each(f, r->account.visual_tokens_held, r->n_layer);
}

static void print_tokens(FILE *f, const fv_report *r) {
    char cached[48] = "";
    if (r->n_image_cached && r->n_image_cached == r->n_image)
        snprintf(cached, sizeof cached, " (cached)");
    else if (r->n_image_cached)
        snprintf(cached, sizeof cached, " (%d cached)", r->n_image_cached);
    fprintf(f, "tokens   %d in (%d visual of %d image%s%s, %d text), %d out, finish: %s\n",
            r->n_prompt, r->n_visual, r->n_image, r->n_image == 1 ? "" : "s", cached, r->n_text,
            r->n_generated, fv_finish_name(r->finish));
    if (r->n_prompt_cached)
        fprintf(f, "cache    %d tokens in were kept from an earlier prompt%s, %.3f s saved\n",
                r->n_prompt_cached, r->n_from_disk ? ", on the disk" : "", r->s_saved);
    if (r->n_drafted)
        fprintf(f, "drafts   %llu of %llu tokens were right, %.3f s saved\n",
                (unsigned long long)r->n_drafts_kept, (unsigned long long)r->n_drafted,
                r->s_drafts_saved);
}

/* Prints "mapped to 12 layers: prune.layer=2/32+ is 2, as published; prune.stride=7/32 is 3, in
 * proportion". */
static void print_mapped(FILE *f, const fv_report *r) {
    static const char *const words[][2] = {{"published", "as published"},
                                           {"proportion", "in proportion"},
                                           {"quarter", "a quarter of the depth"}};
    for (int32_t i = 0; i < r->n_mapped; i++) {
        const fv_report_mapped *m = &r->mapped[i];
        const char *how = m->mapping;
        for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)
            if (strcmp(how, words[w][0]) == 0) how = words[w][1];
        if (i == 0) fprintf(f, "mapped   to %d layers: ", r->n_layer);
        fprintf(f, "%s%s.%s=%s is %d, %s", i ? "; " : "", m->stage, m->param, m->written, m->layer,
                how);
    }
    if (r->n_mapped) fputc('\n', f);
}

/* Prints "prune kept 37.0 % of 18432 KV entries in 29 of 32 layers"; for a stage that drops none,
 * only the layers. */
static void print_stages(FILE *f, const fv_report *r) {
    const char *lead = "stages   ";
    for (int s = 0; s < FV_N_STAGE; s++) {
        const fv_stage_stats_stage *a = &r->account.stage[s];
        if (a->n_layer == 0) continue;
        fprintf(f, "%s%s", lead, fv_stage_name((fv_stage)s));
        if (a->entries_in != a->entries_out)
            fprintf(f, " kept %.1f %% of %" PRIu64 " KV entries",
                    100.0 * (double)a->entries_out / (double)a->entries_in, a->entries_in);
        fprintf(f, " in %d of %d layers", a->n_layer, r->n_layer);
        lead = ", ";
    }
    if (*lead == ',') fputc('\n', f);
}

static bool same_ranks(const fv_packed_layer *a, const fv_packed_layer *b) {
    if (a->code != b->code || a->merged != b->merged || a->row_bits != b->row_bits ||
        a->n_own != b->n_own || a->code_keys != b->code_keys)
        return false;
    if (a->code) return true; /* even if the keys belong to another layer */
    return a->rank[0] == b->rank[0] && a->rank[1] == b->rank[1];
}

static bool same_text(const fv_packed_layer *a, const fv_packed_layer *b) {
    return a->rank_text == b->rank_text && a->code_text == b->code_text;
}

/* Groups layers of the same rank or of codes, with their largest error. */
static void print_text(FILE *f, const fv_pack_report *p, const char *lead) {
    for (int32_t l = 0, end; l < p->n_layer; l = end) {
        float error = 0;
        for (end = l; end < p->n_layer && same_text(&p->layer[l], &p->layer[end]); end++)
            if (p->layer[end].error_text > error) error = p->layer[end].error_text;
        if (p->layer[l].rank_text == 0 && p->layer[l].code_text == 0) continue;
        fprintf(f, "%s%s of ", lead, p->layer[l].code_text ? "text" : "text keys");
        print_layers(f, l, end - 1);
        if (p->layer[l].code_text)
            fprintf(f, " as codes of %d bits", p->layer[l].code_text);
        else
            fprintf(f, " at rank %d", p->layer[l].rank_text);
        fprintf(f, ", error at most %.3f", (double)error);
        lead = "; ";
    }
}

/* All printed numbers of bytes are in KiB. */
static double kib(size_t bytes) { return (double)bytes / 1024; }

/* Groups layers of the same ranks, of codes, or merged, with their largest errors. */
static void print_packed(FILE *f, const fv_pack_report *p) {
    const char *lead = "packed   ";
    if (p->bytes == 0) return;
    for (int32_t l = 0, end; l < p->n_layer; l = end) {
        float error[2] = {0};
        for (end = l; end < p->n_layer && same_ranks(&p->layer[l], &p->layer[end]); end++)
            for (int k = 0; k < 2; k++)
                if (p->layer[end].error[k] > error[k]) error[k] = p->layer[end].error[k];
        if (p->layer[l].rank[1] == 0) continue;
        fputs(lead, f);
        print_layers(f, l, end - 1);
        fputc(' ', f);
        if (p->layer[l].code)
            fprintf(f, "as codes of %d bits", p->layer[l].code);
        else if (p->layer[l].row_bits)
            fprintf(f, "as coefficients of %d bits a token", p->layer[l].row_bits);
        else if (p->layer[l].merged)
            fprintf(f, "merged in pairs");
        else
            fprintf(f, "at rank %d and %d", p->layer[l].rank[0], p->layer[l].rank[1]);
        if (p->layer[l].n_own)
            fprintf(f, " and %d direction%s of its own", p->layer[l].n_own,
                    p->layer[l].n_own > 1 ? "s" : "");
        if (p->layer[l].code_keys)
            fprintf(f, ", keys as codes of %d bits where they are read", p->layer[l].code_keys);
        fprintf(f, ", error at most %.3f and %.3f", (double)error[0], (double)error[1]);
        lead = "; ";
    }
    print_text(f, p, lead);
    fprintf(f, "; %.1f KiB instead of %.1f KiB", kib(p->bytes), kib(p->bytes_raw));
    if (p->unsent) fprintf(f, ", of which %.1f KiB are sent", kib(p->bytes - p->unsent));
    fprintf(f, ", %.3f s\n", p->seconds);
}

static void print_recompressed(FILE *f, const fv_recompress_report *r) {
    if (r->rows == 0) return;
    fprintf(f,
            "compressed %" PRIu64
            " more text rows, in %d layers: %.1f KiB freed, error at most %.3f, %.3f s\n",
            r->rows, r->n_layer, kib(r->bytes), (double)r->error, r->seconds);
}

static void print_handoff(FILE *f, const fv_report *r) {
    if (r->bytes_sent == 0) return;
    fprintf(f, "hand-off %.1f KiB in %" PRIu64 " %s, %.3f s, transport %s", kib(r->bytes_sent),
            r->sections ? r->sections : r->frames, r->sections ? "sections" : "frames",
            r->s_handoff, r->transport);
    if (r->bytes_pair) fprintf(f, " (%.1f KiB)", kib(r->bytes_pair));
    if (r->n_fallback) fprintf(f, ", %" PRIu64 " frames over grpc instead", r->n_fallback);
    if (r->tokens_unsent)
        fprintf(f, ", without %" PRIu64 " tokens (%.1f KiB) that were kept there", r->tokens_unsent,
                kib(r->bytes_unsent));
    fputc('\n', f);
}

void fv_report_print(FILE *f, const fv_report_source *source, const fv_report *r) {
    size_t start = r->bytes_visual + r->bytes_text, end = r->bytes_visual_end + r->bytes_text_end;
    fprintf(f, "policy   %s\n", r->policy[0] ? r->policy : "exact");
    print_tokens(f, r);
    print_visual(f, r);
    print_mapped(f, r);
    print_stages(f, r);
    print_packed(f, &r->packed);
    fprintf(
        f,
        "KV       %.1f KiB exact, %.1f KiB held after prefill (%.2fx smaller), %.1f KiB at the end",
        kib(r->bytes_raw), kib(start), start ? (double)r->bytes_raw / (double)start : 0.0,
        kib(end));
    if (r->bytes_tables_end)
        fprintf(f, ", plus %.1f KiB of tables of compressed layers", kib(r->bytes_tables_end));
    fputc('\n', f);
    if (r->entries_evicted)
        fprintf(f,
                "evicted  %" PRIu64
                " KV entries, each of one KV head, as the answer grew; visual KV "
                "went from %.1f KiB to %.1f KiB\n",
                r->entries_evicted, kib(r->bytes_visual), kib(r->bytes_visual_end));
    print_recompressed(f, &r->recompressed);
    print_handoff(f, r);
    fprintf(f, "seconds  preprocess %.3f, vision %.3f, prefill %.3f, first token at %.3f",
            r->s_preprocess, r->s_vision, r->s_prefill, r->s_first_token);
    if (r->n_generated > 1 && r->s_decode > 0)
        fprintf(f, ", then %.1f tokens/s", (r->n_generated - 1) / r->s_decode);
    if (source->isa) fprintf(f, " (%s)", source->isa);
    fputc('\n', f);
    if (source->prefill_worker)
        fprintf(f, "workers  prefill %s, decode %s\n",
                source->prefill_worker[0] ? source->prefill_worker : "skipped (conversation kept)",
                source->decode_worker[0] ? source->decode_worker : "skipped (one token)");
    for (int s = 0; s < FV_N_STAGE; s++) {
        if (r->decided[s][0])
            fprintf(f, "decided  %s: %s\n", fv_stage_name((fv_stage)s), r->decided[s]);
        if (r->note[s][0]) fprintf(f, "note     %s\n", r->note[s]);
    }
}
