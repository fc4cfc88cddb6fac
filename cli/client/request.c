/* Makes an engine and a request from options. */
#include "cli/client/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/client/progress.h"
#include "common/file.h"
#include "common/log.h"
#include "kernels/backends/open.h"
#include "video/as_images.h"

static const char mark[] = "<image>"; /* placeholder of an image in a question */

static void show_quantizing(void *bar, int32_t done, int32_t n) {
    fv_progress_show(bar, done, n, "weights quantized");
}

/* Reads --adapter, and which one is asked: the one that --model names, or the only one. */
static fv_status read_adapters(const fv_options *o, fv_local_options *opt, char **name) {
    *name = NULL;
    opt->n_adapter = fv_options_list(o, "adapter", &opt->adapter);
    opt->model = fv_options_string(o, "model");
    if (opt->n_adapter == 0 || opt->model[0]) return FV_OK;
    if (opt->n_adapter > 1)
        return FV_FAIL(FV_EINVAL, "there are several --adapter: say with --model which one to ask");
    *name = strndup(opt->adapter[0], strcspn(opt->adapter[0], "="));
    opt->model = *name;
    return *name ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a name");
}

fv_status fv_request_engine(const fv_options *o, int32_t at_once, bool adapters, fv_local **out) {
    fv_progress bar;
    char *adapter = NULL;
    FV_TRY(fv_log_configure(fv_options_string(o, "log")));
    fv_plugin_set_dir(fv_options_string(o, "plugin-dir"));
    fv_local_options opt = {.checkpoint = fv_options_string(o, "checkpoint"),
                            .backend = fv_options_string(o, "device"),
                            .isa = fv_options_string(o, "isa"),
                            .compute = fv_options_string(o, "compute"),
                            .kv_dtype = fv_options_string(o, "kv-dtype"),
                            .weights = fv_options_string(o, "weights"),
                            .progress = show_quantizing,
                            .progress_user = &bar,
                            .gpu = (int32_t)fv_options_int(o, "gpu"),
                            .gpu_trace = fv_options_string(o, "gpu-trace"),
                            .threads = (int32_t)fv_options_int(o, "threads"),
                            .kv_bytes = (size_t)fv_options_int(o, "kv-bytes"),
                            .chunk = (int32_t)fv_options_int(o, "chunk"),
                            .at_once = at_once};
    if (!opt.checkpoint)
        return FV_FAIL(
            FV_EINVAL,
            "--checkpoint MODEL is needed: a Hugging Face checkpoint directory, or ORG/NAME "
            "after `hf download ORG/NAME` (`fovea synth` makes one to try with)");
    if (adapters) FV_TRY(read_adapters(o, &opt, &adapter));
    fv_progress_begin(&bar);
    fv_status st = fv_local_open(&opt, out);
    fv_progress_end(&bar);
    free(adapter);
    return st;
}

/* Reads standard input once: it is the same image however often it is named, for example with
 * --overlay. */
static fv_status read_standard_input(size_t most, char **data, size_t *n) {
    static char *kept;
    static size_t n_kept;
    if (!kept) {
        if (isatty(STDIN_FILENO))
            return FV_FAIL(FV_EINVAL, "--image - reads standard input, which is a terminal: "
                                      "redirect a file to it, or name the file");
        if (!(kept = malloc(most + 1))) return FV_FAIL(FV_ENOMEM, "out of memory for an image");
        n_kept = fread(kept, 1, most + 1, stdin);
    }
    if (ferror(stdin)) return FV_FAIL(FV_EIO, "cannot read standard input");
    if (n_kept == 0) return FV_FAIL(FV_EINVAL, "--image -: standard input is empty");
    if (n_kept > most)
        return FV_FAIL(FV_EDATA, "standard input exceeds the image limit of %zu bytes", most);
    char *copy = malloc(n_kept);
    if (!copy) return FV_FAIL(FV_ENOMEM, "out of memory for an image");
    memcpy(copy, kept, n_kept);
    *data = copy;
    *n = n_kept;
    return FV_OK;
}

fv_status fv_request_file(const char *path, char **data, size_t *n) {
    size_t most = fv_image_limits_default().bytes_max;
    if (strcmp(path, "-") == 0) return read_standard_input(most, data, n);
    return fv_file_read(path, most, data, n);
}

fv_status fv_request_check_question(const char *question) {
    if (question[strspn(question, " \t\r\n")]) return FV_OK;
    return FV_FAIL(FV_EINVAL, "the question is empty");
}

static fv_status read_image(const char *path, fv_image *out) {
    char *data;
    size_t n;
    FV_TRY(fv_request_file(path, &data, &n));
    fv_status st = fv_image_decode(data, n, NULL, out);
    free(data);
    return st == FV_OK ? st : fv_fail_prefix(st, "%s", path);
}

fv_status fv_request_check_video(const fv_options *o, fv_video_options *out) {
    const bool video = fv_options_string(o, "video");
    if (!video && (fv_options_given(o, "frames") || fv_options_given(o, "fps")))
        return FV_FAIL(FV_EINVAL, "--frames and --fps need --video FILE");
    if (!video) return FV_OK;
    if (fv_options_flag(o, "raw"))
        return FV_FAIL(FV_EINVAL, "--video puts text ahead of its frames, and --raw allows none");
    return fv_video_as_images((int32_t)fv_options_int(o, "frames"), fv_options_float(o, "fps"),
                              out);
}

fv_status fv_request_video(const fv_options *o, const fv_layout_config *layout,
                           fv_request_frames *out) {
    const char *path = fv_options_string(o, "video");
    fv_video_options opt;
    fv_request_frames v = {.own = fv_layout_reads_video(layout)};
    *out = (fv_request_frames){0};
    FV_TRY(fv_request_check_video(o, &opt));
    if (!path) return FV_OK;
    const fv_layout_frames frames = fv_layout_frames_of(layout);
    if (v.own) fv_video_as_video(frames.ends, frames.multiple, &opt);
    FV_TRY(fv_video_decode_file(path, &opt, &v.video));
    v.fps = v.video.n * v.video.fps / (double)v.video.n_source;
    *out = v;
    return FV_OK;
}

void fv_request_video_free(fv_request_frames *v) { fv_video_free(&v->video); }

fv_status fv_request_marked_question(const fv_options *o, const char *question, fv_arena *arena,
                                     char **out) {
    const char *const *files;
    const int32_t n_mark =
        fv_options_flag(o, "inline-images") ? 0 : fv_options_list(o, "image", &files);
    char *at;
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n_mark * sizeof mark + strlen(question) + 1, at));
    *out = at;
    for (int32_t i = 0; i < n_mark; i++) at = stpcpy(at, mark);
    strcpy(at, question);
    return FV_OK;
}

bool fv_request_is_inline(const fv_options *o) {
    return fv_options_flag(o, "inline-images") || fv_options_string(o, "video");
}

static fv_status copy_frame(const fv_video *v, int32_t i, fv_image *out) {
    const size_t bytes = 3 * (size_t)v->w * (size_t)v->h;
    *out = (fv_image){.rgb = malloc(bytes), .w = v->w, .h = v->h};
    if (!out->rgb) return FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    memcpy(out->rgb, v->rgb + (size_t)i * bytes, bytes);
    return FV_OK;
}

fv_status fv_request_images(const fv_options *o, const fv_video *video, fv_image **images,
                            int32_t *n) {
    const char *const *files;
    int32_t n_file = fv_options_list(o, "image", &files) + video->n, i = 0;
    fv_image *list = calloc((size_t)n_file + 1, sizeof *list);
    if (!list) return FV_FAIL(FV_ENOMEM, "out of memory for %d images", n_file);
    fv_status st = FV_OK;
    for (; i < n_file && st == FV_OK; i++)
        st = i < video->n ? copy_frame(video, i, &list[i])
                          : read_image(files[i - video->n], &list[i]);
    if (st != FV_OK) {
        while (i > 0) fv_image_free(&list[--i]);
        free(list);
        return st;
    }
    *images = list;
    *n = n_file;
    return FV_OK;
}

fv_status fv_request_parts(const char *question, int32_t n_image, const fv_request_frames *v,
                           fv_arena *arena, fv_chat_part **part, int32_t *n_part) {
    const size_t skip = sizeof mark - 1;
    int32_t found = 0, n = 0;
    n_image -= v->video.n;
    for (const char *at = question; (at = strstr(at, mark)); at += skip) found++;
    if (found != n_image)
        return FV_FAIL(
            FV_EINVAL,
            "--inline-images: the question has %d times <image>, with %d images: they must "
            "be equal",
            found, n_image);
    fv_chat_part *list;
    FV_TRY(FV_ARENA_NEW(arena, 2 * found + 2 + v->video.n, list));
    if (v->own) list[n++].video = true;
    for (int32_t i = 0; !v->own && i < v->video.n; i++) {
        char *time;
        FV_TRY(FV_ARENA_NEW(arena, FV_VIDEO_TIME_MAX, time));
        fv_video_time_text(v->video.seconds[i], time);
        list[n++].ahead = time;
    }
    for (const char *at = question, *end;; at = end + skip) {
        end = strstr(at, mark);
        size_t bytes = end ? (size_t)(end - at) : strlen(at);
        char *text;
        if (bytes) {
            FV_TRY(fv_arena_strndup(arena, at, bytes, &text));
            list[n++].text = text;
        }
        if (!end) break;
        list[n++].text = NULL;
    }
    *part = list;
    *n_part = n;
    return FV_OK;
}

/* Copies a video's number of frames and their times. */
static fv_status keep_times(const fv_request_frames *v, fv_arena *arena, fv_layout_clip *out) {
    double *seconds;
    FV_TRY(FV_ARENA_NEW(arena, v->video.n, seconds));
    memcpy(seconds, v->video.seconds, (size_t)v->video.n * sizeof *seconds);
    *out = (fv_layout_clip){
        .n = v->video.n, .fps = v->fps, .seconds = seconds, .n_seconds = (size_t)v->video.n};
    return FV_OK;
}

static fv_sampling read_sampling(const fv_options *o, const fv_generation_config *g) {
    fv_sampling s = {.repetition_penalty = g->repetition_penalty,
                     .temperature = g->do_sample ? g->temperature : 0,
                     .top_k = g->do_sample ? g->top_k : 0,
                     .top_p = g->do_sample ? g->top_p : 1,
                     .seed = (uint64_t)fv_options_int(o, "seed"),
                     .n_logprobs = (int32_t)fv_options_int(o, "logprobs")};
    if (fv_options_given(o, "temperature"))
        s.temperature = (float)fv_options_float(o, "temperature");
    if (fv_options_given(o, "top-k")) s.top_k = (int32_t)fv_options_int(o, "top-k");
    if (fv_options_given(o, "top-p")) s.top_p = (float)fv_options_float(o, "top-p");
    if (fv_options_given(o, "repetition-penalty"))
        s.repetition_penalty = (float)fv_options_float(o, "repetition-penalty");
    s.min_p = (float)fv_options_float(o, "min-p");
    s.presence_penalty = (float)fv_options_float(o, "presence-penalty");
    s.frequency_penalty = (float)fv_options_float(o, "frequency-penalty");
    return s;
}

fv_status fv_request_chat(const fv_options *o, char **spec) {
    const char *value = fv_options_string(o, "chat");
    if (fv_options_flag(o, "raw") && fv_options_given(o, "chat-variables"))
        return FV_FAIL(FV_EINVAL, "--chat-variables is for a chat template, and --raw uses none");
    return fv_chat_read_spec(value ? value : "", spec);
}

fv_status fv_request_open(const fv_options *o, const fv_local *local, const char *question,
                          fv_ask_request *out) {
    fv_ask_request r = {.ask = {.question = question,
                                .system = fv_options_string(o, "system"),
                                .raw = fv_options_flag(o, "raw"),
                                .sampling = read_sampling(o, fv_local_generation(local)),
                                .max_tokens = (int32_t)fv_options_int(o, "max-tokens"),
                                .ignore_eos = fv_options_flag(o, "ignore-eos")}};
    FV_TRY(fv_policy_parse(fv_options_string(o, "policy"), &r.ask.policy));
    r.ask.n_stop = fv_options_list(o, "stop", &r.ask.stop);
    fv_request_frames v;
    fv_chat_part *part = NULL;
    fv_job_video *video = NULL;
    char *text = NULL;
    FV_TRY(fv_request_video(o, &fv_local_config(local)->layout, &v));
    fv_status st = fv_request_images(o, &v.video, &r.images, &r.ask.n_image);
    r.ask.images = r.images;
    if (st == FV_OK) st = fv_request_form(o, &r.arena, &r.ask.form);
    fv_ask_drafts drafts;
    if (st == FV_OK) st = fv_request_drafts(o, &r.arena, &drafts);
    if (st == FV_OK) r.ask.speculate = drafts.on, r.ask.prediction = drafts.prediction;
    if (st == FV_OK) st = fv_request_chat(o, &r.chat);
    r.ask.chat = r.chat;
    char *variables = NULL;
    if (st == FV_OK) st = fv_request_variables(o, &r.arena, &variables);
    r.ask.variables = variables;
    if (st == FV_OK && fv_request_is_inline(o)) {
        st = fv_request_marked_question(o, question, &r.arena, &text);
        if (st == FV_OK)
            st = fv_request_parts(text, r.ask.n_image, &v, &r.arena, &part, &r.ask.n_part);
        r.ask.part = part;
    }
    if (st == FV_OK && v.own) st = FV_ARENA_NEW(&r.arena, 1, video);
    if (video) st = keep_times(&v, &r.arena, &video->clip);
    if (video) {
        r.ask.n_video = 1;
        r.ask.videos = video;
    }
    fv_request_video_free(&v);
    if (st == FV_OK)
        *out = r;
    else
        fv_request_close(&r);
    return st;
}

void fv_request_close(fv_ask_request *r) {
    for (int32_t i = 0; i < r->ask.n_image; i++) fv_image_free(&r->images[i]);
    free(r->images);
    free(r->chat);
    fv_arena_fini(&r->arena);
    *r = (fv_ask_request){0};
}
