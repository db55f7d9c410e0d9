#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void expect(const fixture *f, const char *path, const char *body, int status, const char *part) {
    char *reply = client_post(f, path, body);
    cr_expect_eq(reply_status(reply), status, "%s: %s", body, reply);
    cr_expect(strstr(reply_body(reply), part), "%s: %s", body, reply);
    free(reply);
}

Test(server_tokenize_endpoints, text_to_ids_and_back) {
    fixture f;
    fixture_start(&f, "a", NULL, NULL);
    expect(&f, "/tokenize", "{\"content\":\"a\xc3\xb6\"}", 200, "{\"tokens\":[97,195,182],\"count\":3,\"max_model_len\":512}");
    expect(&f, "/tokenize", "{\"prompt\":\"\"}", 200, "{\"tokens\":[],\"count\":0");
    expect(&f, "/tokenize", "{\"content\":\"<|im_end|>\"}", 200, "[257]");
    expect(&f, "/tokenize", "{\"content\":\"<|im_end|>\",\"parse_special\":false}", 200, "\"count\":10");
    expect(&f, "/tokenize", "{\"content\":\"a\xc3\xb6\",\"with_pieces\":true}", 200,
           "[{\"id\":97,\"piece\":\"a\"},{\"id\":195,\"piece\":[195]},{\"id\":182,\"piece\":[182]}]");
    expect(&f, "/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", 200, "[256,");
    expect(&f, "/tokenize", "{}", 400, "exactly one");
    expect(&f, "/tokenize", "{\"content\":\"a\",\"prompt\":\"b\"}", 400, "exactly one");
    expect(&f, "/tokenize", "{\"content\":5}", 400, "\"param\":\"content\"");
    expect(&f, "/detokenize", "{\"tokens\":[97,195,182,257]}", 200, "{\"content\":\"a\xc3\xb6<|im_end|>\"}");
    expect(&f, "/detokenize", "{\"tokens\":[195]}", 200, "{\"content\":\"\xef\xbf\xbd\"}");
    expect(&f, "/detokenize", "{\"tokens\":[]}", 200, "{\"content\":\"\"}");
    expect(&f, "/detokenize", "{\"tokens\":[1000]}", 400, "outside the vocabulary");
    expect(&f, "/detokenize", "{}", 400, "tokens");
    expect(&f, "/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", 200, "{\"prompt\":\"<|im_start|>");
    expect(&f, "/apply-template", "{\"messages\":[]}", 400, "\"param\":\"messages\"");
    fixture_stop(&f);
}
