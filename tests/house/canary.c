/* canary - a test that fails. It is registered as WILL_FAIL: were failing tests ever counted as passing, this one would
 * say so. */
int main(void) { return 1; }
