/* model/checkpoint: weights in several files, and their index. */
#include "tests/unit/model/checkpoint_rig.h"

static const char shard_2[] = "model-00002-of-00003.safetensors";
static const char index_name[] = "model.safetensors.index.json";

static checkpoint sharded(void) { return made((fv_synth_options){.dtype = FV_BF16, .n_shard = 3}); }

Test(checkpoint_shards, a_missing_shard_is_named) {
    checkpoint c = sharded();
    remove_file(&c, shard_2);
    refused(&c, FV_ENOTFOUND,
            "model.safetensors.index.json names shard "
            "'model-00002-of-00003.safetensors', which is missing");
}

Test(checkpoint_shards, a_corrupt_shard_is_named) {
    checkpoint c = sharded();
    write_text(c.dir, shard_2, "not a safetensors file");
    refused(&c, FV_EDATA, "model-00002-of-00003.safetensors: ");
}

Test(checkpoint_shards, a_tensor_that_is_not_in_its_shard_is_named) {
    checkpoint c = sharded();
    set_json(&c, index_name, "weight_map", "language_model.model.embed_tokens.weight",
             json_string(shard_2));
    refused(&c, FV_EDATA,
            "tensor 'language_model.model.embed_tokens.weight' is not in its shard "
            "'model-00002-of-00003.safetensors'");
}

/* The first tensor of the first shard, in zeros, into the second too. */
static const char *repeated(const checkpoint *c) {
    static char name[FV_TENSOR_NAME_MAX];
    tensor_file *one = tensor_file_read(c->dir, "model-00001-of-00003.safetensors");
    tensor_file *two = tensor_file_read(c->dir, shard_2);
    const file_tensor *t = &one->tensor[0];
    void *zeros = calloc(1, t->bytes);
    snprintf(name, sizeof name, "%s", t->name);
    tensor_file_add(two, t->name, t->dtype, t->n_dim, t->shape, zeros, t->bytes);
    tensor_file_write(two, c->dir, shard_2, 0);
    tensor_file_free(one);
    tensor_file_free(two);
    free(zeros);
    return name;
}

static void set_index(checkpoint *c, const char *name, const char *shard) {
    char path[PATH_CAP];
    path_of(c, index_name, path);
    json_t *root = json_load_file(path, 0, NULL), *map = json_object_get(root, "weight_map");
    if (shard)
        json_object_set_new(map, name, json_string(shard));
    else
        json_object_del(map, name);
    json_dump_file(root, path, 0);
    json_decref(root);
}

Test(checkpoint_shards, of_a_tensor_in_two_shards_the_index_names_the_one_that_counts) {
    checkpoint c = sharded();
    char first[17], as_it_was[17], again[17];
    fv_checkpoint *ck = opened(&c);
    fv_checkpoint_fingerprint(ck, first);
    fv_checkpoint_close(ck);
    const char *name = repeated(&c);
    fv_checkpoint_fingerprint(ck = opened(&c), as_it_was);
    fv_checkpoint_close(ck);
    cr_assert_str_eq(as_it_was, first);
    set_index(&c, name, shard_2);
    fv_checkpoint_fingerprint(ck = opened(&c), again);
    fv_checkpoint_close(ck);
    cr_assert_str_neq(again, first);
}

Test(checkpoint_shards, a_tensor_in_two_shards_that_the_index_forgets_is_named_with_both) {
    checkpoint c = sharded();
    set_index(&c, repeated(&c), NULL);
    refused(&c, FV_EDATA, "have the same canonical name");
    cr_assert_not_null(strstr(fv_last_error(), "model-00001-of-00003.safetensors"));
    cr_assert_not_null(strstr(fv_last_error(), shard_2));
}

Test(checkpoint_shards, a_tensor_that_the_index_forgets_is_still_found) {
    checkpoint c = sharded();
    set_index(&c, "language_model.model.norm.weight", NULL);
    fv_checkpoint_close(opened(&c));
}

Test(checkpoint_shards, an_index_that_leaves_the_directory_is_refused) {
    checkpoint c = sharded();
    static const char *const names[] = {"../model.safetensors", "/etc/passwd", ""};
    for (size_t i = 0; i < 3; i++) {
        set_json(&c, index_name, "weight_map", "x", json_string(names[i]));
        refused(&c, FV_EDATA, "tensor 'x' must name a file in the same directory");
    }
    set_json(&c, index_name, "weight_map", "x", json_integer(1));
    refused(&c, FV_EDATA, "tensor 'x' must name a file");
}

Test(checkpoint_shards, an_index_without_a_map_is_refused) {
    checkpoint c = sharded();
    write_text(c.dir, index_name, "{\"metadata\":{}}");
    refused(&c, FV_EDATA, "key 'weight_map' must be an object with tensors");
    write_text(c.dir, index_name, "{\"weight_map\":{}}");
    refused(&c, FV_EDATA, "key 'weight_map' must be an object with tensors");
    write_text(c.dir, index_name, "{\"weight_map\":");
    refused(&c, FV_EDATA, "index.json: not valid JSON");
}

Test(checkpoint_shards, a_single_file_wins_over_an_index) {
    checkpoint c = sharded(), d = tiny();
    char from[PATH_CAP], to[PATH_CAP];
    path_of(&d, weights, from);
    path_of(&c, weights, to);
    cr_assert_eq(rename(from, to), 0);
    remove_file(&c, shard_2);
    fv_checkpoint_close(opened(&c));
}

Test(checkpoint_shards, shards_may_have_any_name) {
    checkpoint c = sharded();
    rename_file(&c, shard_2, "second part.bin");
    char path[PATH_CAP];
    path_of(&c, index_name, path);
    json_t *root = json_load_file(path, 0, NULL), *v;
    const char *key;
    json_object_foreach(json_object_get(root, "weight_map"), key,
                        v) if (!strcmp(json_string_value(v), shard_2))
        json_string_set(v, "second part.bin");
    json_dump_file(root, path, 0);
    json_decref(root);
    fv_checkpoint_close(opened(&c));
}
