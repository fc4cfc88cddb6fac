#ifndef FOVEA_CLI_CLIENT_REQUEST_H
#define FOVEA_CLI_CLIENT_REQUEST_H

/* Shared by `ask` and `trace`: an engine, a request and its images, made from the options. */
#include "cli/client/drafts.h"
#include "cli/client/local.h"
#include "cli/client/report.h"
#include "common/arena.h"
#include "common/options.h"
#include "inference.pb-c.h"
#include "video/video.h"

/* A request made from options, with the memory that it owns. */
typedef struct fv_ask_request {
    fv_ask ask;
    fv_image *images;
    char *chat;
    fv_arena arena; /* memory of the question's parts */
} fv_ask_request;

/* Opens the engine that the options describe, for `at_once` concurrent requests; with `adapters` those of --adapter, too.
 * FV_EINVAL if --checkpoint is missing, or --model should say which adapter is asked. */
fv_status fv_request_engine(const fv_options *o, int32_t at_once, bool adapters, fv_local **out);

/* Reads an image's file; "-" is standard input, which is read once and cached. Gives *data (free
 * it) and *n. */
fv_status fv_request_file(const char *path, char **data, size_t *n);

/* Reads the chat template that --chat names, in the form of text/chat.h. Gives *spec (free it). FV_EINVAL: there
 * are variables for it, but --raw renders none. */
fv_status fv_request_chat(const fv_options *o, char **spec);

/* Reads the file that --chat-variables names; in the arena, NULL: none.
 * FV_EINVAL: it is no JSON object. */
fv_status fv_request_variables(const fv_options *o, fv_arena *a, char **out);

/* The form of the answer that options ask for; kind 0: none. Texts are in the arena or the options'. FV_EINVAL:
 * several forms, or a file that cannot be read. _message: as rules, *out is untouched where there is no form. */
fv_status fv_request_form(const fv_options *o, fv_arena *a, fv_grammar_spec *out);
fv_status fv_request_form_message(const fv_options *o, fv_arena *a,
                                  Fovea__Inference__V1__TokenRules **out);

/* FV_EINVAL if the question is empty. */
fv_status fv_request_check_question(const char *question);

/* Frames of --video; {} without it. */
typedef struct fv_request_frames {
    fv_video video;
    bool own;   /* the model reads videos; otherwise frames are images */
    double fps; /* of the frames */
} fv_request_frames;

/* Decoding options. FV_EINVAL: --raw, or --frames or --fps without a video. */
fv_status fv_request_check_video(const fv_options *o, fv_video_options *out);

/* Decodes the frames for a model with this layout. */
fv_status fv_request_video(const fv_options *o, const fv_layout_config *layout,
                           fv_request_frames *out);
void fv_request_video_free(fv_request_frames *v);

/* Writes the question with an "<image>" ahead of it for each --image that has no place in it. */
fv_status fv_request_marked_question(const fv_options *o, const char *question, fv_arena *arena,
                                     char **out);

/* Returns whether the question has images in their places: --inline-images, or a video. */
bool fv_request_is_inline(const fv_options *o);

/* Decodes the images that the options name, after the frames of a video. Gives *images [*n]; free
 * them with fv_image_free, the list with free. */
fv_status fv_request_images(const fv_options *o, const fv_video *video, fv_image **images,
                            int32_t *n);

/* Splits the question into parts of a turn, after the video or its frames, which have their times ahead of them: each
 * "<image>" is an image part. Parts and their texts are in the arena. FV_EINVAL unless it has as many placeholders
 * as images, n_image including frames. */
fv_status fv_request_parts(const char *question, int32_t n_image, const fv_request_frames *v,
                           fv_arena *arena, fv_chat_part **part, int32_t *n_part);

/* Reads and decodes the images, and fills the request; `question` is borrowed. */
fv_status fv_request_open(const fv_options *o, const fv_local *local, const char *question,
                          fv_ask_request *out);
void fv_request_close(fv_ask_request *r);

/* Fills a request to a fleet from the options, without its prompt (cli/client/session.h). It is in
 * the arena and borrows from the options. */
fv_status fv_request_message(const fv_options *o, const fv_request_frames *v, fv_arena *arena,
                             Fovea__Inference__V1__GenerateRequest *out);

/* Reads an image's file to send it; in the arena. */
fv_status fv_request_image(const char *path, fv_arena *arena, Fovea__Inference__V1__Image **out);

#endif
