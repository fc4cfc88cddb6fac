#ifndef FOVEA_MODEL_TOWER_DIRECTORY_H
#define FOVEA_MODEL_TOWER_DIRECTORY_H

/* A TOWER IN A DIRECTORY OF ITS OWN, as in MobileVLM V2. The checkpoint's config.json names it with
 * mm_vision_tower, "mtgv/clip-vit-large-patch14-336"; a directory with the last part of that name
 * is searched for inside the checkpoint's directory and beside it, nowhere else. It has the tower's
 * config.json and preprocessor_config.json, and its weights unless the checkpoint's files hold
 * them. */
#include "common/arena.h"
#include "common/status.h"

typedef struct fv_tower_directory {
    const char *path;   /* NULL: the checkpoint is one directory */
    const char *config; /* the checkpoint's config.json with the tower's as its vision_config */
    size_t bytes;
} fv_tower_directory;

/* Finds the tower's directory for the checkpoint `dir`, whose config.json is `config`; results are
 * in the arena. FV_ENOTFOUND says where it was searched for and what must be in it. */
fv_status fv_tower_directory_find(const char *dir, const char *config, size_t n, fv_arena *arena,
                                  fv_tower_directory *out);

#endif
