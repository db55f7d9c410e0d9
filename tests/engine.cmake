# Scheduler and KV manager under a virtual clock; the engine's thread; the engine on tiny models and on the real one.
add_library(test_support_engine STATIC support/engine_client.c support/engine_laws.c support/tier_laws.c)
qr_compile(test_support_engine)
target_link_libraries(test_support_engine PUBLIC test_support_model test_support_faults qr_engine)

add_library(test_support_tiers STATIC support/fake_store.c)
qr_compile(test_support_tiers)
target_link_libraries(test_support_tiers PUBLIC qr_kv)

qr_criterion(unit engine TIMEOUT 240 ROOMS test_support_engine test_support_model qr_engine)
qr_criterion(sim engine ROOMS test_support_tiers qr_engine TIMEOUT 300)
qr_plain_test(model engine_laws ROOMS test_support_engine test_support_model qr_engine TIMEOUT 600)
qr_plain_test(model engine_laws_tiers ROOMS test_support_engine test_support_model qr_engine TIMEOUT 900)
qr_plain_test(stress engine ROOMS test_support_engine test_support_model qr_engine TIMEOUT 300)
