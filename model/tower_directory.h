#ifndef FOVEA_MODEL_TOWER_DIRECTORY_H
#define FOVEA_MODEL_TOWER_DIRECTORY_H

/* A TOWER IN A DIRECTORY OF ITS OWN, as MobileVLM V2 has it. The checkpoint's config.json names it with
 * mm_vision_tower, "mtgv/clip-vit-large-patch14-336"; the directory of that last name is looked for
 * inside of the checkpoint's and beside it, and nowhere else. It has the tower's config.json and
 * preprocessor_config.json, and its weights where the checkpoint's files do not hold them. */
#include "common/arena.h"
#include "common/status.h"

typedef struct fv_tower_directory {
    const char *path;   /* NULL: the checkpoint is one directory */
    const char *config; /* the checkpoint's config.json with the tower's as its vision_config */
    size_t bytes;
} fv_tower_directory;

/* The tower's directory of the checkpoint `dir`, whose config.json is `config`; what is found is in the
 * arena. FV_ENOTFOUND says where the directory is looked for and what belongs into it. */
fv_status fv_tower_directory_find(const char *dir, const char *config, size_t n, fv_arena *arena,
                                  fv_tower_directory *out);

#endif
