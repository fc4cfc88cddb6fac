/* model/inspect: broken folders, each with its file, fault and remedy, and what is said of sound ones. */
#include "model/inspect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/folder.h"
#include "model/synth/synth.h"
#include "tests/support/gguf_file.h"
#include "tests/support/tensor_file.h"

static char dir[256];

static void make(int32_t shards) {
    fv_synth_report made;
    scratch_dir(dir, sizeof dir);
    const fv_synth_options o = {
        .dir = dir, .shape = "tiny", .n_shard = shards, .dtype = FV_BF16, .force = true};
    cr_assert_eq(fv_synth_write(&o, &made), FV_OK, "%s", fv_last_error());
}

/* Runs a shell command in the folder. */
static void change(const char *command) {
    char line[2048];
    snprintf(line, sizeof line, "cd '%s' && %s", dir, command);
    cr_assert_eq(system(line), 0, "%s", command);
}

typedef struct broken {
    const char *command;              /* breaks the folder */
    const char *file, *what, *remedy; /* expected words of the fault */
    int32_t shards;
    bool note; /* it is no obstacle */
} broken;

#define CONFIG(sed) "sed -i '" sed "' config.json"
#define ALONE "find . -mindepth 1 -delete && "

static const broken folders[] = {
    {"rm config.json", "/config.json", "config.json does not exist", "hf download", 1, false},
    {"echo 'version https://git-lfs.github.com/spec/v1' > config.json", "/config.json",
     "Git LFS pointer", "git lfs pull", 1, false},
    {"echo '{' > config.json", "/config.json", "config.json", "hf download", 1, false},
    {": > config.json", "/config.json", "config.json", "hf download", 1, false},
    {"rm config.json && ln -s ../../blobs/gone config.json", "/config.json",
     "link to ../../blobs/gone", "hf download", 1, false},
    {CONFIG("s/\"llava\"/\"kosmos-9\"/; s/Llava[A-Za-z]*/Kosmos/"), "/config.json",
     "unsupported model_type 'kosmos-9'", "docs/SUPPORTED.md", 1, false},
    {CONFIG("s/\"llava\"/\"deepseek_vl9\"/; s/Llava[A-Za-z]*/Deep/; "
            "1s/{/{\"auto_map\": {\"AutoModel\": \"modeling.Deep\"},/") " && echo 'import os' > "
                                                                        "modeling.py",
     "/config.json", "unsupported model_type", "Python code of its own", 1, false},
    {CONFIG("s/\"hidden_size\": [0-9]*/\"hidden_size\": 32/"), "/model.safetensors", "has shape",
     "agree with the others", 1, false},
    {CONFIG("1s/{/{\"quantization_config\": {\"quant_method\": \"hqq\"},/"), "/config.json", "hqq",
     "--weights int4", 1, false},
    {"rm model.safetensors", "/model.safetensors", "neither model.safetensors nor", "hf download",
     1, false},
    {"truncate -s 2000 model.safetensors", "/model.safetensors", "model.safetensors", "hf download",
     1, false},
    {"truncate -s -100 model.safetensors", "/model.safetensors", "model.safetensors", "hf download",
     1, false},
    {": > model.safetensors", "/model.safetensors", "model.safetensors", "hf download", 1, false},
    {"echo 'version https://git-lfs.github.com/spec/v1' > model.safetensors", "/model.safetensors",
     "Git LFS pointer", "git lfs pull", 1, false},
    {"ln -sf ../../blobs/gone model.safetensors", "/model.safetensors", "link to ../../blobs/gone",
     "hf download", 1, false},
    {"sed -i 's/\"BF16\"/\"I16\" /' model.safetensors", "/model.safetensors", "has dtype I16",
     "--weights int4", 1, false},
    {"rm model-00002-of-00003.safetensors", "/model.safetensors.index.json",
     "names shard 'model-00002-of-00003.safetensors', which is missing", "hf download", 3, false},
    {"truncate -s 500 model-00003-of-00003.safetensors", "/model-00003-of-00003.safetensors",
     "model-00003-of-00003.safetensors", "hf download", 3, false},
    {"sed -i '0,/model-00001-of/s//model-00002-of/' model.safetensors.index.json",
     "/model.safetensors.index.json", "is not in its shard", "hf download", 3, false},
    {"sed -i 's/00003.safetensors/00004.safetensors/' model.safetensors.index.json",
     "/model.safetensors.index.json", "which is missing", "hf download", 3, false},
    {"rm model.safetensors.index.json model-00002-of-00003.safetensors",
     "/model-00002-of-00003.safetensors", "is missing", "hf download", 3, false},
    {"mv model.safetensors pytorch_model.bin", "/pytorch_model.bin",
     "AutoModelForImageTextToText as M; M.from_pretrained('", "run that command", 1, false},
    {"rm model.safetensors && touch pytorch_model.bin.index.json", "/pytorch_model.bin.index.json",
     "weights in this format are not read", "run that command", 1, false},
    {"mv model.safetensors tf_model.h5", "/tf_model.h5", "from_tf=True", "run that command", 1,
     false},
    {"mv model.safetensors adapter_extra.safetensors", "/model.safetensors",
     "neither model.safetensors nor", "hf download", 1, false},
    {"rm config.json && echo '{}' > params.json", "/params.json", "key 'dim' is missing",
     "hf download", 1, false},
    {"rm config.json && echo '{\"dim\": 8, \"moe\": {}}' > params.json", "/params.json",
     "key 'moe' is not read from Mistral's own layout", "fetch config.json", 1, false},
    {ALONE "true", "/config.json", "is empty", "hf download", 1, false},
    {ALONE "mkdir -p .cache/huggingface/download && touch "
           ".cache/huggingface/download/x.incomplete",
     ".incomplete", "not finished", "continues the download", 1, true},
    {ALONE "echo '{}' > adapter_config.json", "/adapter_config.json", "it is an adapter",
     "--adapter NAME=DIR", 1, false},
    {ALONE "mkdir refs snapshots", "/config.json", "folder in the Hugging Face cache", "", 1,
     false},
    {ALONE "echo '{}' > model_index.json", "/model_index.json", "diffusers", "", 1, false},
    {ALONE "mkdir inner && echo '{}' > inner/config.json", "/config.json", "the checkpoint may be",
     "", 1, false},
    {"echo '{\"peft_type\": \"LORA\"}' > adapter_config.json", "/adapter_config.json",
     "served without it", "--adapter NAME=DIR", 1, true},
    {CONFIG("1s/{/{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
            "\"kv_cache_scheme\": {\"num_bits\": 8}},/"),
     "/config.json", "kv_cache_scheme", "policy", 1, true},
    {CONFIG("s/\"model_type\": \"llava\"/\"model_type\": \"acme_vl\"/"), "/config.json",
     "taken for the", "compare", 1, true},
    {"rm tokenizer.json", "/tokenizer.json", "no tokenizer.json", "hf download", 1, false},
    {"rm tokenizer.json && echo x > tokenizer.model", "/tokenizer.model",
     "it is no SentencePiece model", "hf download", 1, false},
    {"rm tokenizer.json && touch merges.txt", "/tokenizer.json", "neither vocab.json nor",
     "hf download", 1, false},
    {"echo '{\"model\": 1}' > tokenizer.json", "/tokenizer.json", "no model", "hf download", 1,
     false},
    {"ln -sf ../../blobs/gone tokenizer.json", "/tokenizer.json", "link to ../../blobs/gone",
     "hf download", 1, false},
    {"rm preprocessor_config.json", "/preprocessor_config.json", "how images are resized",
     "hf download", 1, false},
    {"echo '{\"image_processor_type\": \"Idefics3ImageProcessor\"}' > preprocessor_config.json",
     "/preprocessor_config.json", "one of the two files is another checkpoint's", "hf download", 1,
     false},
    {"echo '[]' > generation_config.json", "/generation_config.json", "generation_config.json",
     "hf download", 1, false},
    {"echo '{% if %}' > chat_template.jinja", "/chat_template.jinja", "--chat", "--chat", 1, true},
};

/* A vision model's text half as llama.cpp writes it, without the file of its tower. */
static void put_gguf(const char *arch) {
    char path[400];
    gguf_file f = {0};
    gguf_put_text(&f, "general.architecture", arch);
    snprintf(path, sizeof path, "%s/model-%s.gguf", dir, arch);
    gguf_write(&f, path);
}

Test(inspect, gguf_files_of_a_folder_are_explained) {
    fv_inspection in;
    make(0);
    change("rm config.json model.safetensors");
    put_gguf("gemma3");
    cr_assert_eq(fv_inspect(dir, &in), FV_OK);
    cr_assert(!in.can_serve && in.n_fault > 0);
    cr_assert(strstr(in.fault[0].file, "/model-gemma3.gguf"), "%s", in.fault[0].file);
    fv_inspection_free(&in);
    put_gguf("qwen2vl");
    cr_assert_eq(fv_inspect(dir, &in), FV_OK);
    cr_assert_eq(in.n_fault, 1);
    cr_assert(strstr(in.fault[0].what, "has 2 GGUF models"), "%s", in.fault[0].what);
    cr_assert(strstr(in.fault[0].remedy, "--mmproj"));
    fv_inspection_free(&in);
    change("rm model-gemma3.gguf && echo GGUF > model-qwen2vl.gguf");
    cr_assert_eq(fv_inspect(dir, &in), FV_OK);
    cr_assert(!in.can_serve);
    fv_inspection_free(&in);
}

static const fv_fault *find(const fv_inspection *in, const broken *b) {
    for (int32_t i = 0; i < in->n_fault; i++) {
        const fv_fault *f = &in->fault[i];
        if (strstr(f->file, b->file) && strstr(f->what, b->what) && strstr(f->remedy, b->remedy) &&
            f->fatal == !b->note)
            return f;
    }
    return NULL;
}

Test(inspect, each_broken_folder_has_its_file_its_fault_and_its_remedy, .timeout = 300) {
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const broken *b = &folders[i];
        fv_inspection in;
        make(b->shards);
        change(b->command);
        cr_assert_eq(fv_inspect(dir, &in), FV_OK, "%s", fv_last_error());
        const fv_fault *first = in.fault;
        cr_expect(find(&in, b), "%s: %d faults, the first: %s: %s: %s", b->command, in.n_fault,
                  in.n_fault ? first->file : "", in.n_fault ? first->what : "",
                  in.n_fault ? first->remedy : "");
        for (int32_t k = 0; k < in.n_fault; k++) cr_expect(*in.fault[k].remedy, "%s", b->command);
        if (!b->note) cr_expect(!in.can_serve, "%s", b->command);
        fv_inspection_free(&in);
        change("find . -mindepth 1 -delete");
    }
}

Test(inspect, a_sound_folder_has_no_fault_and_its_sizes) {
    fv_inspection in;
    fv_checkpoint *ck;
    make(3);
    cr_assert_eq(fv_inspect(dir, &in), FV_OK);
    cr_assert_eq(in.n_fault, 0, "%s", in.n_fault ? in.fault[0].what : "");
    cr_assert(in.can_serve && in.has_config && in.has_weights);
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_OK);
    cr_assert_eq(in.weight_bytes, fv_checkpoint_bytes(ck));
    cr_assert_eq(in.n_param * 2, in.weight_bytes); /* all are BF16 */
    const fv_text_config *t = &fv_checkpoint_config(ck)->text;
    cr_assert_eq(fv_inspection_kv_bytes(&in, FV_F32),
                 (uint64_t)(8 * t->n_layer * t->n_kv * t->d_head));
    cr_assert_eq(in.n_file, 3);
    cr_assert_str_eq(in.quantization, "none");
    fv_checkpoint_close(ck);
    fv_inspection_free(&in);
}

Test(inspect, several_faults_are_listed_at_once) {
    fv_inspection in;
    make(0);
    change("rm tokenizer.json preprocessor_config.json && truncate -s 100 model.safetensors");
    cr_assert_eq(fv_inspect(dir, &in), FV_OK);
    cr_assert_eq(in.n_fault, 3, "%d", in.n_fault);
    fv_inspection_free(&in);
}

Test(inspect, names_that_command_a_terminal_or_are_no_text_are_made_harmless) {
    fv_inspection in;
    make(0);
    change("ln -sf \"$(printf 'gone\\033[31m\\377.safetensors')\" model.safetensors");
    cr_assert_eq(fv_inspect(dir, &in), FV_OK);
    cr_assert_gt(in.n_fault, 0);
    const char *what = in.fault[0].what;
    cr_expect(strstr(what, "gone?[31m?.safetensors"), "%s", what);
    fv_inspection_free(&in);
}

Test(inspect, links_as_in_the_hugging_face_cache_and_shards_of_any_name_are_opened) {
    fv_inspection in;
    fv_checkpoint *ck;
    make(3);
    change("mkdir b && for f in *.*; do mv $f b/$f && ln -s b/$f $f; done");
    cr_assert_eq(fv_inspect(dir, &in), FV_OK);
    cr_assert(in.can_serve, "%s", in.n_fault ? in.fault[0].what : "");
    fv_inspection_free(&in);
    change(
        "rm model.safetensors.index.json && mv model-00001-of-00003.safetensors a.safetensors && "
        "mv model-00002-of-00003.safetensors b.safetensors && "
        "mv model-00003-of-00003.safetensors llava_v1.safetensors && "
        "cp -L a.safetensors consolidated.safetensors");
    cr_assert_eq(fv_checkpoint_open(dir, &ck), FV_OK, "%s", fv_last_error());
    fv_checkpoint_close(ck);
}
