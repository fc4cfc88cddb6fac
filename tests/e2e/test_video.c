/* A clip by make_clip through `fovea ask --video`: its frames become images, each after its time,
 * or one video for a model that reads videos; in one process and over a fleet. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "tests/support/answer.h"
#include "tests/support/fleet.h"
#include "video/as_images.h"

static fleet f;
static char body[2048]; /* a command */

static void end(void) { fleet_close(&f); }

static void run(const char *command) {
    command_run(&fleet_said, "%s", command);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
}

/* Gives the same as options for images: files in the folder, and a question with their times. */
static void as_images(const char *clip, bool demo, char *args, size_t cap) {
    fv_video_options opt;
    fv_video v;
    char files[2048] = "", question[512] = "", path[512], text[FV_VIDEO_TIME_MAX];
    cr_assert_eq(fv_video_as_images(3, 0, &opt), FV_OK);
    opt.helper = FOVEA_BIN "/fovea-video";
    cr_assert_eq(fv_video_decode_file(clip, &opt, &v), FV_OK, "%s", fv_last_error());
    cr_assert_eq(v.n, 3);
    for (int32_t i = 0; i < v.n; i++) {
        uint8_t *png;
        size_t n;
        cr_assert_eq(fv_video_frame_png(&v, i, &png, &n), FV_OK);
        snprintf(path, sizeof path, "%s/%d.png", f.dir, i);
        cr_assert_eq(fv_file_write(path, png, n), FV_OK);
        free(png);
        fv_video_time_text(v.seconds[i], text);
        snprintf(files + strlen(files), sizeof files - strlen(files), " --image %s", path);
        snprintf(question + strlen(question), sizeof question - strlen(question), "%s<image>",
                 text);
    }
    fv_video_free(&v);
    cr_assert_str_eq(question, "<0.5 seconds><image><1.5 seconds><image><2.5 seconds><image>");
    snprintf(args, cap, "--ignore-eos --max-tokens 6 --inline-images%s%s '%s%sWhat moves?'", files,
             demo ? " --image " FOVEA_TEST_DATA "/golden/demo.png" : "", question,
             demo ? "<image>" : "");
}

/* POSTs a chat about the file by curl; returns the answer's body. */
static const char *post(const char *file, const char *type) {
    snprintf(
        body, sizeof body,
        "cd %s && { printf '{\"temperature\":0,\"max_tokens\":6,\"ignore_eos\":true,\"messages\":[{"
        "\"role\":\"user\",\"content\":[{\"type\":\"video_url\",\"video_url\":{\"num_frames\":3,"
        "\"url\":\"data:%s;base64,'; base64 -w0 %s; printf "
        "'\"}},{\"type\":\"text\",\"text\":\"What "
        "moves?\"}]}]}'; } >body.json && curl -s --data @body.json $(sed -n 's|^\\(http://.*/v1\\) "
        ".*|\\1|p' "
        "up.out)/chat/completions",
        f.dir, type, file);
    run(body);
    return fleet_said.out;
}

/* Sends the video by HTTP; the answer must be that of `fovea ask` with these arguments. */
static void ask_gateway(const char *where, const char *clip, const char *args) {
    json_t *local = answer_ask(where, args), *got = json_loads(post(clip, "video/mp4"), 0, NULL);
    const char *said = NULL;
    json_unpack(got, "{s:[{s:{s:s}}]}", "choices", "message", "content", &said);
    cr_assert(said, "%s", fleet_said.out);
    cr_assert_str_eq(said, json_string_value(json_object_get(local, "text")));
    json_decref(local);
    json_decref(got);
    cr_assert(strstr(post(FOVEA_TEST_DATA "/golden/demo.png", "video/mp4"),
                     "\"param\":\"messages[0].content[0].video_url\""),
              "%s", fleet_said.out);
    cr_assert(strstr(fleet_said.out, "no MP4, WebM or GIF"), "%s", fleet_said.out);
}

static void as_video(const char *clip, bool demo, char *args, size_t cap) {
    snprintf(args, cap, "--ignore-eos --max-tokens 6 --video %s --frames 3%s 'What moves?'", clip,
             demo ? " --image " FOVEA_TEST_DATA "/golden/demo.png" : "");
}

/* Writes a template that has the parts of a turn in their order, or the images first, as LLaVA's has them. */
static void write_template(const char *name, bool images_first) {
    static const char loop[] = "{% for c in m['content'] if c['type'] == '";
    char path[512], text[1024];
    snprintf(path, sizeof path, "%s/%s.jinja", f.dir, name);
    if (images_first)
        snprintf(
            text, sizeof text,
            "{%% for m in messages %%}%simage' %%}{{ '<image>\n' }}{%% endfor %%}%stext' %%}{{ "
            "c['text'] }}{%% endfor %%}{%% endfor %%}",
            loop, loop);
    else
        snprintf(
            text, sizeof text,
            "{%% for m in messages %%}{%% for c in m['content'] %%}{{ '<image>\n' if c['type'] == "
            "'image' else c['text'] }}{%% endfor %%}{%% endfor %%}");
    cr_assert_eq(fv_file_write(path, text, strlen(text)), FV_OK);
}

Test(video, frames_are_images_after_their_times_or_one_video_of_a_model_that_reads_videos,
     .fini = end, .timeout = 300) {
    char command[2048], where[512], images[4096], video[4096];
    fleet_open(&f, "video");
    snprintf(command, sizeof command,
             FOVEA_BIN "/fovea synth --shape tiny --family llava --out %s/next && " FOVEA_BIN
                       "/fovea synth --shape tiny --family qwen2_5_vl --out %s/ck && " FOVEA_BIN
                       "/../tests/make_clip %s/a.mp4",
             f.dir, f.dir, f.dir);
    run(command);
    snprintf(command, sizeof command, "%s/a.mp4", f.dir);
    as_images(command, true, images, sizeof images);
    as_video(command, true, video, sizeof video);
    snprintf(where, sizeof where, "--checkpoint %s/next", f.dir);
    write_template("order", false);
    snprintf(where + strlen(where), sizeof where - strlen(where), " --chat %s/order.jinja", f.dir);
    json_t *a = answer_ask(where, video), *b = answer_ask(where, images);
    cr_assert_eq(json_integer_value(json_object_get(answer_report(a, "tokens"), "images")), 4);
    answer_assert_same(a, b, false, "a video and its frames as images");
    snprintf(where, sizeof where, "--checkpoint %s/ck", f.dir);
    a = answer_ask(where, video), b = answer_ask(where, images);
    cr_assert_neq(json_integer_value(json_object_get(answer_report(a, "tokens"), "prompt")),
                  json_integer_value(json_object_get(answer_report(b, "tokens"), "prompt")));
    json_decref(a), json_decref(b);
    fleet_start(&f, "--threads 1 --http 127.0.0.1:0");
    answer_assert_one_process(f.dir, f.address, video);
    as_video(command, false, video, sizeof video);
    ask_gateway(where, command, video);
    fleet_stop(&f);
    snprintf(images, sizeof images, "cd %s && mv ck video && mv next ck", f.dir);
    run(images);
    fleet_start(&f, "--threads 1 --http 127.0.0.1:0");
    snprintf(where, sizeof where, "--checkpoint %s/ck", f.dir);
    ask_gateway(where, command, video);
    fleet_stop(&f);
}

Test(video, times_of_frames_reach_a_model_that_is_told_them, .fini = end, .timeout = 300) {
    char video[1024], clip[512], where[512];
    fleet_open(&f, "video-times");
    snprintf(body, sizeof body,
             FOVEA_BIN "/fovea synth --shape tiny --family qwen3_vl --out %s/ck && " FOVEA_BIN
                       "/../tests/make_clip %s/a.mp4",
             f.dir, f.dir);
    run(body);
    snprintf(clip, sizeof clip, "%s/a.mp4", f.dir);
    snprintf(where, sizeof where, "--checkpoint %s/ck", f.dir);
    as_video(clip, true, video, sizeof video);
    fleet_start(&f, "--threads 1 --http 127.0.0.1:0");
    answer_assert_one_process(f.dir, f.address, video);
    as_video(clip, false, video, sizeof video);
    ask_gateway(where, clip, video);
    fleet_stop(&f);
}

Test(video, frames_stand_beside_their_times_with_a_template_that_puts_images_first, .fini = end,
     .timeout = 300) {
    char where[512], clip[512], args[4096], with[4608];
    fleet_open(&f, "video-order");
    snprintf(body, sizeof body,
             FOVEA_BIN "/fovea synth --shape tiny --family llava --out %s/ck && " FOVEA_BIN
                       "/../tests/make_clip %s/a.mp4",
             f.dir, f.dir);
    run(body);
    write_template("order", false);
    write_template("first", true);
    snprintf(where, sizeof where, "--checkpoint %s/ck", f.dir);
    snprintf(clip, sizeof clip, "%s/a.mp4", f.dir);
    as_images(clip, false, args, sizeof args);
    snprintf(with, sizeof with, "--chat %s/order.jinja %s", f.dir, args);
    json_t *images = answer_ask(where, with);
    as_video(clip, false, args, sizeof args);
    snprintf(with, sizeof with, "--chat %s/first.jinja %s", f.dir, args);
    json_t *first = answer_ask(where, with);
    answer_assert_same(images, first, false, "images first");
    fleet_start(&f, "--threads 1");
    answer_assert_one_process(f.dir, f.address, with);
    fleet_stop(&f);
}

/* The command itself refuses: there is no fleet. */
static void refused(const char *args, const char *words) {
    command_run(&fleet_said, FOVEA_BIN "/fovea ask %s", args);
    cr_assert_neq(fleet_said.status, 0);
    cr_assert(strstr(fleet_said.err, words), "%s", fleet_said.err);
}

#define NOWHERE "--to 127.0.0.1:1 "
#define NANO "--checkpoint " FOVEA_TEST_DATA "/../checkpoints/nano "

Test(video, options_that_do_not_fit_are_refused) {
    refused(NOWHERE "--frames 3 hi", "need --video");
    refused(NOWHERE "--fps 2 hi", "need --video");
    refused(NOWHERE "--video x --fps 2 --frames 2 hi", "not both");
    refused(NOWHERE "--video x --raw hi", "--raw allows none");
    refused(NANO "--video /dev/null hi", "not a regular file");
    refused(NANO "--video " FOVEA_TEST_DATA "/golden/demo.png hi", "no MP4, WebM or GIF");
}
