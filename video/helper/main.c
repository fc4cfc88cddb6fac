/* fovea-video: decodes frames of the video, or the image, on standard input, for the program that has started it
 * (video/protocol.h). Failures are written as records; the exit status means nothing. */
#include <libavutil/log.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "video/helper/frames.h"
#include "video/helper/sandbox.h"
#include "video/helper/still.h"

#ifdef __SANITIZE_ADDRESS__
/* The leak check starts a process, which the sandbox forbids. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }
#endif

static fv_status run(const fv_video_request *request) {
    static fv_container c;
    FV_TRY(fv_sandbox_enter(&request->limits));
    if (request->is_still) return fv_still_write(request);
    FV_TRY(fv_container_open(&request->limits, &c));
    return fv_frames_write(&c, request);
}

int main(void) {
    fv_video_request request;
    av_log_set_level(AV_LOG_QUIET);
    if (recv(STDOUT_FILENO, &request, sizeof request, MSG_WAITALL) != sizeof request) {
        fputs("fovea-video decodes videos and images for the programs of fovea, which start it\n",
              stderr);
        return 2;
    }
    fv_status st = run(&request);
    if (st != FV_OK)
        fv_record_write(FV_VIDEO_ERROR, st, fv_last_error(),
                        strnlen(fv_last_error(), FV_VIDEO_SENTENCE_MAX), NULL, 0);
    return st == FV_OK ? 0 : 1;
}
