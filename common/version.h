#ifndef FOVEA_COMMON_VERSION_H
#define FOVEA_COMMON_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

/* Of this build, as CMakeLists.txt has it: "0.1.0". */
const char *fv_version(void);

#ifdef __cplusplus
}
#endif
#endif
