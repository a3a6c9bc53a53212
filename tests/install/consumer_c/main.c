/* The smallest program that embeds Terrace from C. */
#include <stdio.h>
#include <string.h>
#include <terrace.h>

int main(void) {
  terrace_config* config = NULL;
  const char* value = NULL;
  if (terrace_config_create(&config) != TERRACE_OK ||
      terrace_config_set(config, "device.memory", "8GiB") != TERRACE_OK ||
      terrace_config_get(config, "device.memory", &value) != TERRACE_OK ||
      strcmp(value, "8GiB") != 0) {
    fprintf(stderr, "%s\n", terrace_message());
    return 1;
  }
  terrace_config_close(config);
  printf("terrace %s with binary interface %u\n", terrace_version(), terrace_abi_version());
  return 0;
}
