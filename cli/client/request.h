#ifndef FOVEA_CLI_CLIENT_REQUEST_H
#define FOVEA_CLI_CLIENT_REQUEST_H

/* What `ask` and `trace` have in common: the options that describe an engine (engine_options.def, the
 * last rows of a command's table) and a request (request_options.def, the first ones). */
#include "cli/client/local.h"
#include "cli/client/report.h"
#include "common/arena.h"
#include "common/options.h"
#include "inference.pb-c.h"
#include "video/video.h"

/* A request read from options, with what it owns. */
typedef struct fv_ask_request {
    fv_ask ask;
    fv_image *images;
    char *chat;
    fv_arena arena; /* of the question's parts */
} fv_ask_request;

/* Opens the engine that the options describe, for so many requests at a time. FV_EINVAL when
 * --checkpoint is missing. */
fv_status fv_request_engine(const fv_options *o, int32_t at_once, fv_local **out);

/* The bytes of an image's file; "-" is standard input, which is read once and kept. Gives *data
 * (free it) and *n. */
fv_status fv_request_file(const char *path, char **data, size_t *n);

/* The chat template that --chat names, as text/chat.h has it. Gives *spec (free it). */
fv_status fv_request_chat(const fv_options *o, char **spec);

/* FV_EINVAL when there is nothing to answer: an empty question. */
fv_status fv_request_check_question(const char *question);

/* --video, {} without it. */
typedef struct fv_request_frames {
    fv_video video;
    bool own;   /* the model reads it as a video; otherwise frames are images */
    double fps; /* of the frames */
} fv_request_frames;

/* How it is decoded. FV_EINVAL: --raw, or --frames or --fps without a video. */
fv_status fv_request_check_video(const fv_options *o, fv_video_options *out);

/* Its frames, for a model with this layout. */
fv_status fv_request_video(const fv_options *o, const fv_layout_config *layout,
                           fv_request_frames *out);
void fv_request_video_free(fv_request_frames *v);

/* The question with frames that are images in their places: their times, each ahead of an "<image>", and
 * one more for each --image that has no place in the question yet. */
fv_status fv_request_video_question(const fv_options *o, const fv_request_frames *v,
                                    const char *question, fv_arena *arena, char **out);

/* Whether parts of the question are in the places of images: --inline-images, or a video. */
bool fv_request_is_inline(const fv_options *o);

/* The images that the options name, decoded, after the frames of a video. Gives *images [*n]; free
 * them with fv_image_free, the list with free. */
fv_status fv_request_images(const fv_options *o, const fv_video *video, fv_image **images,
                            int32_t *n);

/* The question as parts of a turn, after the video, if that is one: each "<image>" in it is an image. In the
 * arena; the texts are its own. FV_EINVAL unless there are as many of them as images, of n_image with the
 * frames. */
fv_status fv_request_parts(const char *question, int32_t n_image, const fv_request_frames *v,
                           fv_arena *arena, fv_chat_part **part, int32_t *n_part);

/* Reads and decodes the images and fills the request; `question` is borrowed. */
fv_status fv_request_open(const fv_options *o, const fv_local *local, const char *question,
                          fv_ask_request *out);
void fv_request_close(fv_ask_request *r);

/* The options of a request to a fleet, all but its prompt (cli/client/session.h). It is in the
 * arena and borrows from the options. */
fv_status fv_request_message(const fv_options *o, const fv_request_frames *v, fv_arena *arena,
                             Fovea__Inference__V1__GenerateRequest *out);

/* An image's file as it is sent; in the arena. */
fv_status fv_request_image(const char *path, fv_arena *arena, Fovea__Inference__V1__Image **out);

#endif
