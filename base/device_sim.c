typedef int qr_device_sim_empty;
