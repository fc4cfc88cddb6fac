#ifndef FOVEA_TESTS_SUPPORT_API_BODY_H
#define FOVEA_TESTS_SUPPORT_API_BODY_H

/* A whole body for gateway/api/request.h, in pieces. */
#include "gateway/api/request.h"

enum { API_BODY_JSON_MAX = 4 << 20 };

/* Pieces of `piece` bytes; 0: sizes that differ. Free its bytes in any case. */
fv_status api_body_read(const fv_api_reader_options *opt, const char *body, size_t n, size_t piece,
                        fv_arena *arena, fv_api_request *out, char param[FV_API_PARAM_MAX]);

#endif
