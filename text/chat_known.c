/* Templates for LLaVA checkpoints that have none of their own. */
#include "text/chat_known.h"

#include <stddef.h>

#define IMAGES                                                                                     \
    "{% for part in message['content'] if part['type'] == 'image' %}{{ '<image>\\n' }}{% endfor "  \
    "%}"
#define TEXT(what)                                                                                 \
    "{% for part in message['content'] if part['type'] == 'text' %}{{ " what " }}{% endfor %}"
/* Begins the loop over messages; refuses roles that the model was not trained on. */
#define EACH                                                                                       \
    "{% for message in messages %}"                                                                \
    "{% set role = 'system' if message['role'] == 'developer' else message['role'] %}"             \
    "{% if role not in ['system', 'user', 'assistant'] %}"                                         \
    "{{ raise_exception('there are system, user and assistant turns, not ' ~ role) }}{% endif %}"
#define OPEN(text) "{% endfor %}{{ '" text "' if add_generation_prompt }}"

const fv_chat_known fv_chat_known_templates[] = {
    /* Vicuna 1.1, as LLaVA was trained on it */
    {"vicuna", "llama",
     EACH "{{ {'system': '', 'user': 'USER: ', 'assistant': 'ASSISTANT: '}[role] }}" IMAGES TEXT(
         "part['text']") "{{ '</s>' if role == 'assistant' else ' ' }}" OPEN("ASSISTANT:")},
    /* llava-hf's own */
    {"llava", NULL,
     "{% for message in messages %}"
     "{{ message['role'].upper() + ': ' if message['role'] != 'system' }}" IMAGES TEXT(
         "part['text'] + ' '") OPEN("ASSISTANT:")},
    {"chatml", "qwen2",
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}" IMAGES TEXT(
         "part['text']") "{{ '<|im_end|>\\n' }}" OPEN("<|im_start|>assistant\\n")},
    {"mistral", "mistral",
     EACH "{{ {'system': '<<SYS>>\\n', 'user': '[INST] ', 'assistant': ' '}[role] }}" IMAGES TEXT(
         "part['text']") "{{ {'system': '\\n<</SYS>>\\n\\n', 'user': ' [/INST]', "
                         "'assistant': '</s> '}[role] }}{% endfor %}"},
    {"none", NULL, "{% for message in messages %}" IMAGES TEXT("part['text']") "{% endfor %}"},
};
const int32_t fv_n_chat_known = sizeof fv_chat_known_templates / sizeof *fv_chat_known_templates;
