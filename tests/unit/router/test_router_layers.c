/* router/relay.h lists the files of a request's life from top to bottom: each includes headers of those below it
 * only. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

enum { FILES_MAX = 32, NAME_MAX_BYTES = 32 }; /* as in the formats below */

static char names[FILES_MAX][NAME_MAX_BYTES];
static int n_name;

/* Reads the list: lines of a comment, each with a file and what it does. */
static void read_list(void) {
    char line[512];
    FILE *header = fopen(FOVEA_TEST_DATA "/../router/relay.h", "r");
    cr_assert(header);
    while (fgets(line, sizeof line, header) && n_name < FILES_MAX)
        n_name += sscanf(line, " *   %31[a-z_].c ", names[n_name]) == 1 &&
                  strncmp(strstr(line, names[n_name]) + strlen(names[n_name]), ".c ", 3) == 0;
    fclose(header);
    cr_assert_geq(n_name, 10, "router/relay.h lists %d files", n_name);
}

static int place_of(const char *name) {
    int i = 0;
    while (i < n_name && strcmp(names[i], name) != 0) i++;
    return i;
}

/* Checks one file of the list, names[at].c or .h; returns how many files of the list it includes. */
static int check(int at, const char *ending) {
    char path[512], line[512], included[64];
    int n = 0;
    snprintf(path, sizeof path, "%s/../router/%s%s", FOVEA_TEST_DATA, names[at], ending);
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s, which router/relay.h lists, does not exist", path);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "#include \"router/%63[a-z_].h\"", included) != 1) continue;
        int to = place_of(included);
        cr_assert_geq(to, at, "router/%s%s includes router/%s.h, which stands above it", names[at],
                      ending, included);
        n += to < n_name && to > at;
    }
    fclose(file);
    return n;
}

Test(router_layers, files_of_a_requests_life_include_only_what_is_below_them) {
    int n_include = 0;
    read_list();
    for (int i = 0; i < n_name; i++) n_include += check(i, ".c") + check(i, ".h");
    cr_assert_geq(n_include, n_name, "the includes are read");
}

/* Whether a file of router/ includes the structure of a request, or of an attempt. */
static bool includes_request(const char *name) {
    char path[512], line[512];
    bool found = false;
    snprintf(path, sizeof path, "%s/../router/%.200s", FOVEA_TEST_DATA, name);
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s", path);
    while (fgets(line, sizeof line, file))
        found |= strcmp(line, "#include \"router/request.h\"\n") == 0 ||
                 strcmp(line, "#include \"router/attempt.h\"\n") == 0 ||
                 strcmp(line, "#include \"router/life.h\"\n") == 0;
    fclose(file);
    return found;
}

Test(router_layers, every_file_that_knows_a_request_is_in_the_list) {
    int n = 0;
    read_list();
    DIR *folder = opendir(FOVEA_TEST_DATA "/../router");
    cr_assert(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        char name[NAME_MAX_BYTES];
        if (sscanf(e->d_name, "%31[a-z_].", name) != 1 || !includes_request(e->d_name)) continue;
        cr_assert_lt(place_of(name), n_name, "router/%s is not in the list of router/relay.h",
                     e->d_name);
        n++;
    }
    closedir(folder);
    cr_assert_geq(n, 8, "the includes are read");
}
