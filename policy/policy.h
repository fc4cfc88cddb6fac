#ifndef FOVEA_POLICY_POLICY_H
#define FOVEA_POLICY_POLICY_H

/* A compression policy: for each stage at most one method, with its parameters.
 *
 * The text form, used by the command line, tests and logs:
 *     prune=random,layer=4,keep=0.5;select=streaming,sink=4
 *     preset=paper-vtw;prune=vtw,layer=20          (a preset first, then the differences)
 *     preset=paper-vtw;prune=none
 *     quality                                      (a preset's name alone is preset=quality)
 * White space around ';', ',' and '=' is allowed. methods.def lists all methods and parameters. An
 * empty text is `exact`. Layers are the checkpoint's own; `layer=3/32` is layer 3 of 32, mapped to
 * the checkpoint's depth as defaults are; `layer=3/32+` too, but not before layer 3
 * (fv_choice_layer). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "policy/params.h"

#define FV_STAGE(id, name, where) FV_STAGE_##id,
typedef enum fv_stage {
#include "policy/methods.def"
    FV_N_STAGE
} fv_stage;

/* FV_METHOD_PRUNE_fastv and so on: the index of a method in fv_policy_methods(). */
typedef enum fv_method_id {
#define FV_METHOD(stage, name, source, summary) FV_METHOD_##stage##_##name,
#include "policy/methods.def"
    FV_N_METHOD
} fv_method_id;

enum {
    FV_MAX_PARAMS = 16, /* per method */
    FV_MAX_TEXTS = 4,   /* text parameters per method */
    FV_MAX_WORDS = 8,   /* words per choice */
    FV_POLICY_TEXT_MAX = 2304
};

typedef enum fv_param_type {
    FV_PARAM_INT,
    FV_PARAM_SEED, /* an unsigned INT of 32 bits */
    FV_PARAM_FLOAT,
    FV_PARAM_LAYER,
    FV_PARAM_LAYERS, /* a number of layers, mapped to the checkpoint's depth like LAYER */
    FV_PARAM_CHOICE, /* one of some words; its value is the word's index */
    FV_PARAM_TEXT    /* text that the method itself interprets */
} fv_param_type;

typedef struct fv_param_info {
    const char *name;
    fv_param_type type;
    double fallback, min, max; /* for a choice, indices; for a text, 0 */
    bool quiet;                /* not written if at its default */
    size_t offset; /* of its field, or a choice's first, in the method's struct (policy/params.h) */
    const char *unit, *meaning;
    const char *text;                   /* default of a text */
    const char *word[FV_MAX_WORDS + 1]; /* words of a choice, up to a NULL */
} fv_param_info;

typedef struct fv_method_info {
    fv_stage stage;
    fv_method_id id;
    const char *name, *source, *summary;
    int32_t n_param;
    fv_param_info param[FV_MAX_PARAMS];
} fv_method_info;

typedef struct fv_preset_info {
    const char *name, *text, *meaning;
} fv_preset_info;

typedef struct fv_choice {
    const fv_method_info *method; /* NULL: the stage does nothing */
    double value[FV_MAX_PARAMS];  /* in the order of method->param; for a text, its index in
                                   * text[] */
    bool given[FV_MAX_PARAMS];    /* written, not a default; for a layer: not mapped */
    bool early[FV_MAX_PARAMS];    /* for a mapped layer: not before the published one */
    char text[FV_MAX_TEXTS][FV_PARAM_TEXT_MAX];
} fv_choice;

typedef struct fv_policy {
    fv_choice stage[FV_N_STAGE];
} fv_policy; /* {0} is `exact` */

const char *fv_stage_name(fv_stage s);
const char *fv_param_type_name(fv_param_type t); /* "int", "choice" ... */
bool fv_param_is_layer(fv_param_type t);         /* LAYER or LAYERS */
const char *fv_stage_where(fv_stage s);

/* All methods in table order, and all presets; *n: their number. */
const fv_method_info *fv_policy_methods(int32_t *n);
const fv_preset_info *fv_policy_presets(int32_t *n);

/* Parses the text form. FV_EINVAL with a sentence for an unknown stage, method, parameter or preset
 * (it lists the known names and suggests one), a value out of range, a stage given twice, or
 * methods that conflict (policy/conflicts.h). The method `none` removes the preset's method. */
fv_status fv_policy_parse(const char *text, fv_policy *out);

/* A policy that is made stage by stage, with the sentences of fv_policy_parse for what is wrong. */
typedef struct fv_policy_draft {
    fv_policy policy;
    bool given[FV_N_STAGE]; /* by fv_policy_draft_stage, not by a preset */
} fv_policy_draft;          /* starts as {0} */

/* Begins with a preset; the stages that follow replace its own. FV_EINVAL: unknown. */
fv_status fv_policy_draft_preset(fv_policy_draft *d, const char *name);
/* Gives a stage its method, and sets *out to its choice, whose parameters the caller may set; the
 * choice has no method if the method is `none`. FV_EINVAL: unknown, or the stage was given before. */
fv_status fv_policy_draft_stage(fv_policy_draft *d, const char *stage, const char *method,
                                fv_choice **out);
/* Checks the whole policy for methods that conflict, and copies it to *out. FV_EINVAL. */
fv_status fv_policy_draft_finish(const fv_policy_draft *d, fv_policy *out);

/* Prints the text form: stages in order, with every parameter for which fv_choice_is_written is true;
 * "" for exact. Parsing it gives the same policy, numbers to the same bits. */
void fv_policy_print(const fv_policy *p, char out[FV_POLICY_TEXT_MAX]);

bool fv_policy_is_exact(const fv_policy *p);

/* Index in fv_policy_presets() of the first preset with this text form, as fv_policy_print prints
 * it; the number of presets if there is none. */
int32_t fv_policy_preset_of(const char *text);

/* Name of that preset, or `text` itself if there is none. */
const char *fv_policy_name_of(const char *text);

/* Sets the method with its defaults. */
void fv_choice_init(fv_choice *c, const fv_method_info *method);

/* Sets one parameter from the n bytes "PARAMETER=VALUE". FV_EINVAL as in fv_policy_parse; the value
 * is undefined then. */
fv_status fv_choice_set(fv_choice *c, const char *text, size_t n);

/* Set one parameter by its name, to a number or to what the text form has behind '='. FV_EINVAL as in
 * fv_choice_set. */
fv_status fv_choice_set_number(fv_choice *c, const char *param, double value);
fv_status fv_choice_set_text(fv_choice *c, const char *param, const char *value);

/* Returns whether parameter `i` is printed and sent: all are, except a quiet one at its default. */
bool fv_choice_is_written(const fv_choice *c, int32_t i);

/* The value of parameter `i` as fv_choice_set takes it. */
void fv_choice_print(const fv_choice *c, int32_t i, char out[FV_PARAM_TEXT_MAX]);

/* Fills the method's struct in *out, with LAYERs mapped to n_layer layers. Other bytes of *out are
 * 0. */
void fv_choice_params(const fv_choice *c, int32_t n_layer, fv_params *out);

/* Maps a paper's layer of 32 to n_layer layers: round(layer * n_layer / 32). */
int32_t fv_layer_of_32(double layer, int32_t n_layer);

/* Value of parameter i, a LAYER, in a network of n_layer layers: as given, or mapped from 32
 * layers, but no less than the parameter's minimum. k/32 is mapped to round(k n_layer / 32), for k
 * < 32 to the last layer at most (28/32 of three layers is the third one). k/32+ is also at least
 * k, as long as k is in the first quarter of the network: the role of early layers depends on the
 * number of layers before them, not on the number after. FastV's layer 2 of 32 is the first after
 * two that run all tokens. */
int32_t fv_choice_layer(const fv_choice *c, int32_t i, int32_t n_layer);

/* How a layer of 32 was mapped to a network of n_layer layers. */
typedef enum fv_layer_mapping {
    FV_LAYER_GIVEN,      /* the checkpoint's own number */
    FV_LAYER_PUBLISHED,  /* the published number of 32 layers */
    FV_LAYER_PROPORTION, /* the same share of the depth */
    FV_LAYER_QUARTER,    /* k/32+, and layer k is beyond the first quarter of the network */
} fv_layer_mapping;

fv_layer_mapping fv_choice_layer_mapping(const fv_choice *c, int32_t i, int32_t n_layer);
const char *fv_layer_mapping_name(fv_layer_mapping m); /* "published" ... */

#endif
