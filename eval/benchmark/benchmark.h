#ifndef FOVEA_EVAL_BENCHMARK_BENCHMARK_H
#define FOVEA_EVAL_BENCHMARK_BENCHMARK_H

/* A BENCHMARK: a user's questions about images, one line of JSON each (docs/BENCHMARKS.md).
 *
 *   {"image": "chart.png", "question": "Which year is highest?", "answers": ["2019"], "metric": "anls"}
 *
 *   image | images   path, or 1 to 8 paths, relative to the file's folder
 *   document         in place of images, for a text model: text ahead of the question
 *   needles          optional: 1 to 8 of {"text": ..., "depth": 0 to 1}, put into the document there
 *   begin            optional, with a document: how the answer begins
 *   question         text; a document may have none, and no answers: its own text goes on
 *   answers          text, or 1 to 32 texts; with choices the right one, by its text or its letter
 *   choices          optional: 2 to 26 texts, which are asked with letters under the question
 *   metric           optional: a name from fv_metric_describe; default: choice with choices, else
 *                    exact_match
 *   max_tokens       optional: limit of the answer, 1 to 1024; default 32
 *   id               optional: text or number; ignored
 *
 * Empty lines are skipped. */
#include "common/status.h"

enum { FV_BENCHMARK_IMAGES = 8, FV_BENCHMARK_ANSWERS = 32, FV_BENCHMARK_CHOICES = 26 };
enum { FV_BENCHMARK_NEEDLES = 8 };

typedef enum fv_metric {
    FV_METRIC_EXACT_MATCH = 0,
    FV_METRIC_CONTAINS,
    FV_METRIC_VQA,
    FV_METRIC_ANLS,
    FV_METRIC_CHOICE,
    FV_N_METRIC
} fv_metric;

typedef struct fv_metric_info {
    const char *name;    /* "vqa" */
    const char *measure; /* "VQA accuracy" */
} fv_metric_info;

/* 0 to FV_N_METRIC - 1. Static. */
const fv_metric_info *fv_metric_describe(int32_t metric);

/* A text put into a document. */
typedef struct fv_benchmark_needle {
    char *text;
    double depth; /* 0: at the document's beginning, 1: at its end */
} fv_benchmark_needle;

typedef struct fv_benchmark_item {
    fv_metric metric;
    int32_t line; /* in the file, from 1 */
    int32_t n_image, n_answer, n_choice, max_tokens;
    int32_t right;                      /* index of the right choice, for FV_METRIC_CHOICE only */
    char *question;                     /* the question as asked, with its choices; NULL: none */
    char *image[FV_BENCHMARK_IMAGES];   /* [n_image] paths */
    char *answer[FV_BENCHMARK_ANSWERS]; /* [n_answer] */
    char *choice[FV_BENCHMARK_CHOICES]; /* [n_choice] */
    char *document;                     /* NULL: the item has images */
    char *begin;                        /* or NULL */
    int32_t n_needle;
    fv_benchmark_needle needle[FV_BENCHMARK_NEEDLES]; /* [n_needle] ascending by depth */
} fv_benchmark_item;                                  /* owns its texts */

typedef struct fv_benchmark {
    int32_t n_item;
    fv_benchmark_item *item; /* [n_item] owned */
    int32_t n_document;      /* items with a document: none of them, or all */
    char digest[17];         /* digest of the lines and the images' sizes, in hexadecimal */
} fv_benchmark;              /* {0} is empty and may be freed */

/* Reads the first `most` items of a file (0: all) of up to 256 MiB, and checks by their headers
 * that their images exist, have a known format and are within the default limits. FV_EDATA, or the
 * error of an image, names file, line and key. */
fv_status fv_benchmark_read(const char *path, int32_t most, fv_benchmark *out);
void fv_benchmark_free(fv_benchmark *b);

/* Score of an answer, 0 to 1. */
double fv_benchmark_score(const fv_benchmark_item *x, const char *said);

/* Score of guessing: 1 / n_choice in multiple choice, else 0. */
double fv_benchmark_chance(const fv_benchmark_item *x);

#endif
