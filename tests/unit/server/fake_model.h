/* fake_model.h - a model without weights: every byte is a token (id = byte value), and a few control tokens follow. */
#ifndef QR_TEST_FAKE_MODEL_H
#define QR_TEST_FAKE_MODEL_H

#include <quire/model.h>

enum { FAKE_IM_START = 256, FAKE_IM_END, FAKE_END_OF_TEXT, FAKE_VOCABULARY };

quire_model *fake_model_create(bool with_template);
void fake_model_destroy(quire_model *model);

#endif
