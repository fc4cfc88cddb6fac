/* Templates for LLaVA checkpoints that have none of their own. */
#include "text/chat_known.h"

#include <stddef.h>

#define IMAGES                                                                                     \
    "{% for part in message['content'] if part['type'] == 'image' %}{{ '<image>\\n' }}{% endfor "  \
    "%}"
#define TEXT(what)                                                                                 \
    "{% for part in message['content'] if part['type'] == 'text' %}{{ " what " }}{% endfor %}"

const fv_chat_known fv_chat_known_templates[] = {
    /* Vicuna 1.1, as LLaVA was trained on it */
    {"vicuna", "llama",
     "{% for message in messages %}"
     "{{ {'system': '', 'user': 'USER: ', 'assistant': 'ASSISTANT: '}[message['role']] }}" IMAGES
         TEXT("part['text']") "{{ '</s>' if message['role'] == 'assistant' else ' ' }}{% endfor %}"
                              "{{ 'ASSISTANT:' }}"},
    /* llava-hf's own */
    {"llava", NULL,
     "{% for message in messages %}"
     "{{ message['role'].upper() + ': ' if message['role'] != 'system' }}" IMAGES TEXT(
         "part['text'] + ' '") "{% endfor %}{{ 'ASSISTANT:' }}"},
    {"chatml", "qwen2",
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}" IMAGES TEXT(
         "part['text']") "{{ '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}"},
    {"mistral", "mistral",
     "{% for message in messages %}"
     "{{ {'system': '<<SYS>>\\n', 'user': '[INST] ', 'assistant': ' '}[message['role']] }}" IMAGES
         TEXT("part['text']") "{{ {'system': '\\n<</SYS>>\\n\\n', 'user': ' [/INST]', "
                              "'assistant': '</s> '}[message['role']] }}{% endfor %}"},
    {"none", NULL, "{% for message in messages %}" IMAGES TEXT("part['text']") "{% endfor %}"},
};
const int32_t fv_n_chat_known = sizeof fv_chat_known_templates / sizeof *fv_chat_known_templates;
