#ifndef FOVEA_COMMON_VERSION_H
#define FOVEA_COMMON_VERSION_H

/* The version of this build, from CMakeLists.txt: "0.1.0". */
const char *fv_version(void);

#endif
