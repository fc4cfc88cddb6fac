/* Images as they come, over a fleet: every format gives the answer of one process, one picture in eight orientations gives one
 * answer, the bytes decide and not the media type; and a fleet whose programs have no fovea-video beside them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/answer.h"
#include "tests/support/fleet.h"

#define FORMATS FOVEA_TEST_DATA "/golden/formats/"

static fleet f;

static void end(void) { fleet_close(&f); }

static json_t *ask(const char *where, const char *file) {
    char args[512];
    snprintf(args, sizeof args, "--ignore-eos --max-tokens 4 --image " FORMATS "%s Hi", file);
    return answer_ask(where, args);
}

static void begin(const char *name) {
    fleet_open(&f, name);
    command_run(&fleet_said, FOVEA_BIN "/fovea synth --shape tiny --family llava --out %s/ck",
                f.dir);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
}

/* POSTs a chat with the file as a data: URL of this type, in a part of this kind; returns "STATUS\nBODY". */
static const char *post(const char *part, const char *type, const char *file) {
    char gateway[64];
    fleet_gateway(&f, gateway);
    command_run(
        &fleet_said,
        "cd %s && { printf '{\"temperature\":0,\"max_tokens\":4,\"ignore_eos\":true,"
        "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"%s\",\"%s\":{\"url\":"
        "\"data:%s;base64,'; base64 -w0 %s; printf '\"}},{\"type\":\"text\",\"text\":\"Hi\"}"
        "]}]}'; } >body.json && curl -s -o answer.json -w '%%{http_code}\\n' --data "
        "@body.json http://%s/v1/chat/completions && cat answer.json",
        f.dir, part, part, type, file, gateway);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
    return fleet_said.out;
}

Test(formats, every_format_gives_the_answer_of_one_process, .fini = end, .timeout = 300) {
    static const char *const files[] = {"animated.gif",  "palette_4.bmp", "jpeg.tiff",
                                        "alpha.avif",    "grid.heic",     "apng.png",
                                        "animated.webp", "exif_6.jpg"};
    char args[512];
    begin("formats");
    fleet_start(&f, "--threads 1 --http 127.0.0.1:0");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(args, sizeof args, "--ignore-eos --max-tokens 4 --image " FORMATS "%s Hi",
                 files[i]);
        answer_assert_one_process(f.dir, f.address, args);
    }
    cr_assert(strstr(post("image_url", "image/png", FORMATS "plain.gif"), "200\n"), "%s",
              fleet_said.out);
    cr_assert(strstr(post("image_url", "image/gif", FORMATS "lzw.tiff"), "200\n"), "%s",
              fleet_said.out);
    cr_assert(strstr(post("image_url", "image/png", FORMATS "golden.txt"), "400\n"), "%s",
              fleet_said.out);
    cr_assert(strstr(fleet_said.out, "GIF, BMP, TIFF, AVIF or HEIC"), "%s", fleet_said.out);
    fleet_stop(&f);
}

Test(formats, one_picture_in_eight_orientations_gives_one_answer, .fini = end, .timeout = 300) {
    char where[512], file[64];
    begin("orientations");
    fleet_start(&f, "--threads 1");
    snprintf(where, sizeof where, "--to %s", f.address);
    for (int o = 2; o <= 8; o++) {
        snprintf(file, sizeof file, "exif_%d.png", o);
        answer_assert_same(ask(where, "exif_1.png"), ask(where, file), false, file);
    }
    fleet_stop(&f);
}

/* Starts a fleet of copies of the programs, in a folder without fovea-video. */
static void start_without_decoder(void) {
    command_run(
        &fleet_said,
        "cd %s && mkdir bin && cd bin && cp " FOVEA_BIN "/fovea " FOVEA_BIN
        "/fovea-router " FOVEA_BIN "/fovea-prefill " FOVEA_BIN "/fovea-decode " FOVEA_BIN
        "/fovea-gateway . && cd .. && "
        "{ bin/fovea up --checkpoint ck --listen 127.0.0.1:0 --http 127.0.0.1:0 --threads 1 "
        ">up.out "
        "2>up.err </dev/null & } && echo $! && for i in $(seq 600); do grep -q ready up.out && "
        "break; "
        "sleep 0.1; done; cat up.err >&2; sed -n 's/^ready on \\([^ ]*\\): .*/\\1/p' up.out",
        f.dir);
    cr_assert_eq(sscanf(fleet_said.out, "%d %63s", &f.pid, f.address), 2, "%s%s", fleet_said.out,
                 fleet_said.err);
}

Test(formats, without_its_decoder_a_fleet_says_so_and_answers_501, .fini = end, .timeout = 300) {
    begin("no-decoder");
    start_without_decoder();
    command_run(&fleet_said, "cat %s/up.err", f.dir);
    cr_assert(strstr(fleet_said.out, "event=no-image-decoder"), "%s", fleet_said.out);
    cr_assert(strstr(fleet_said.out, "event=no-video-decoder"), "%s", fleet_said.out);
    cr_assert(strstr(post("image_url", "image/gif", FORMATS "plain.gif"), "501\n"), "%s",
              fleet_said.out);
    cr_assert(strstr(fleet_said.out, "CMake target fovea-video"), "%s", fleet_said.out);
    cr_assert(strstr(post("video_url", "video/mp4", FORMATS "animated.gif"), "501\n"), "%s",
              fleet_said.out);
    cr_assert(strstr(fleet_said.out, "CMake target fovea-video"), "%s", fleet_said.out);
    command_run(&fleet_said, FOVEA_BIN "/fovea ask --to %s --image " FORMATS "rgb.bmp Hi",
                f.address);
    cr_assert_neq(fleet_said.status, 0);
    cr_assert(strstr(fleet_said.err, "UNIMPLEMENTED"), "%s", fleet_said.err);
    cr_assert(strstr(post("image_url", "image/png", FORMATS "apng.png"), "200\n"), "%s",
              fleet_said.out);
    fleet_stop(&f);
}
