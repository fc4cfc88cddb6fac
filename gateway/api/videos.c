/* Replaces a video by its frames: parts of a turn, images of the request and, where the model reads
 * videos, a Video message. */
#include <string.h>

#include "gateway/api/request.h"

typedef Fovea__Inference__V1__Part part_message;
typedef Fovea__Inference__V1__Image image_message;
typedef Fovea__Inference__V1__Video video_message;

static fv_status put_video_part(const fv_api_video *v, fv_arena *arena) {
    static Fovea__Inference__V1__NextVideo next = FOVEA__INFERENCE__V1__NEXT_VIDEO__INIT;
    part_message *part;
    FV_TRY(FV_ARENA_NEW(arena, 1, part));
    fovea__inference__v1__part__init(part);
    part->kind_case = FOVEA__INFERENCE__V1__PART__KIND_VIDEO;
    part->video = &next;
    v->turn->parts[v->part] = part;
    return FV_OK;
}

/* Replaces the video's part by an image for each frame, with the time ahead of it. */
static fv_status put_image_parts(const fv_api_video *v, const fv_api_frame *frame, size_t n,
                                 fv_arena *arena) {
    Fovea__Inference__V1__NextImage *next;
    Fovea__Inference__V1__Turn *turn = v->turn;
    const size_t behind = turn->n_parts - v->part - 1;
    part_message **list, *part;
    FV_TRY(FV_ARENA_NEW(arena, v->part + n + behind, list));
    FV_TRY(FV_ARENA_NEW(arena, n, part));
    FV_TRY(FV_ARENA_NEW(arena, n, next));
    memcpy(list, turn->parts, v->part * sizeof *list);
    memcpy(list + v->part + n, turn->parts + v->part + 1, behind * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        fovea__inference__v1__part__init(&part[i]);
        fovea__inference__v1__next_image__init(&next[i]);
        list[v->part + i] = &part[i];
        part[i].kind_case = FOVEA__INFERENCE__V1__PART__KIND_IMAGE;
        part[i].image = &next[i];
        next[i].ahead = (char *)(uintptr_t)frame[i].time;
    }
    turn->parts = list;
    turn->n_parts += n - 1;
    return FV_OK;
}

/* Inserts the video before later ones, and shifts their images. */
static fv_status put_video(fv_api_request *r, const fv_api_video *v, const fv_api_frames *f,
                           fv_arena *arena) {
    Fovea__Inference__V1__GenerateRequest *m = &r->message;
    video_message **list, *video;
    FV_TRY(FV_ARENA_NEW(arena, m->n_videos + 1, list));
    FV_TRY(FV_ARENA_NEW(arena, 1, video));
    fovea__inference__v1__video__init(video);
    video->first_image = (uint32_t)v->image;
    video->n_frames = (uint32_t)f->n;
    video->fps = f->fps;
    FV_TRY(FV_ARENA_NEW(arena, f->n, video->seconds));
    for (size_t i = 0; i < f->n; i++) video->seconds[i] = f->frame[i].seconds;
    video->n_seconds = f->n;
    list[0] = video;
    for (size_t i = 0; i < m->n_videos; i++) {
        list[i + 1] = m->videos[i];
        list[i + 1]->first_image += (uint32_t)f->n;
    }
    m->videos = list;
    m->n_videos++;
    return put_video_part(v, arena);
}

fv_status fv_api_put_frames(fv_api_request *r, const fv_api_frames *f, fv_arena *arena) {
    const fv_api_video *v = &r->videos[r->n_video - 1];
    Fovea__Inference__V1__GenerateRequest *m = &r->message;
    image_message **list, *image;
    if (m->n_images + f->n > FV_API_IMAGES_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d images and frames", FV_API_IMAGES_MAX);
    FV_TRY(FV_ARENA_NEW(arena, m->n_images + f->n, list));
    FV_TRY(FV_ARENA_NEW(arena, f->n, image));
    if (v->image) memcpy(list, m->images, v->image * sizeof *list);
    for (size_t i = 0; i < f->n; i++) {
        fovea__inference__v1__image__init(&image[i]);
        image[i].data = f->frame[i].png;
        list[v->image + i] = &image[i];
    }
    if (m->n_images > v->image)
        memcpy(list + v->image + f->n, m->images + v->image,
               (m->n_images - v->image) * sizeof *list);
    FV_TRY(f->as_video ? put_video(r, v, f, arena) : put_image_parts(v, f->frame, f->n, arena));
    m->images = list;
    m->n_images += f->n;
    r->n_video--;
    return FV_OK;
}
