/* The formats of JSON Schema that are enforced, as patterns. Each accepts some of the format's texts and nothing else;
 * where readers differ (a leap second, a time without an offset, quoted names in addresses), what all of them accept. */
#include <string.h>

#include "grammar/internal.h"

#define YEAR "[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000"
#define DATE                                                                                       \
    "(" YEAR ")-((01|03|05|07|08|10|12)-(0[1-9]|[12][0-9]|3[01])|(04|06|09|11)-(0[1-9]|[12][0-9]|" \
    "30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME                                                                                       \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]" \
    ")"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
/* At most 251 characters, so that no usual maxLength has to be counted beside it. */
#define EMAIL "[A-Za-z0-9_+-](\\.?[A-Za-z0-9_+-]){0,29}@" LABEL "(\\." LABEL "){1,2}"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 OCTET "(\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define URI_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})"
#define PATH_CHAR "([A-Za-z0-9._~!$&'()*+,;=@/-]|%[0-9A-Fa-f]{2})"
#define TAIL "(\\?(" URI_CHAR "|\\?)*)?(#(" URI_CHAR "|\\?)*)?"
#define AUTHORITY "([A-Za-z0-9._~-]+@)?" LABEL "(\\." LABEL "){0,8}(:[0-9]{1,4})?"
#define URI "[A-Za-z][A-Za-z0-9+.-]{0,31}:(//" AUTHORITY "(/" URI_CHAR "*)?|" PATH_CHAR "+)" TAIL

static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration",
     "P([0-9]{1,9}W|([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}D)"
     "(T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))?"
     "|T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))"},
    {"email", EMAIL},
    {"idn-email", EMAIL},
    {"hostname", LABEL "(\\." LABEL "){0,3}"},
    {"idn-hostname", LABEL "(\\." LABEL "){0,3}"},
    {"ipv4", IPV4},
    {"ipv6", "(" H16 ":){7}" H16 "|(" H16 ":){1,6}:" H16 "|::(" H16 ":){0,5}" H16 "|::"},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"uri", URI},
    {"iri", URI},
    {"uri-reference", URI "|/" PATH_CHAR "*" TAIL "|" PATH_CHAR "*" TAIL},
    {"iri-reference", URI "|/" PATH_CHAR "*" TAIL "|" PATH_CHAR "*" TAIL},
    {"uri-template", "(" URI_CHAR "|\\{[A-Za-z0-9_]+\\})*"},
    {"json-pointer", "(/([ -.0-}]|~[01])*)*"},
    {"relative-json-pointer", "(0|[1-9][0-9]{0,8})(#|(/([ -.0-}]|~[01])*)*)"},
    {"regex", "[A-Za-z0-9 _-]*"},
};

const char *fv_format_regex(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].regex;
    return NULL;
}
