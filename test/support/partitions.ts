/** Creates a table that is partitioned by its hash, as docs/scale.md does; a migration adds the rest. */
export const partitionedByHash = (table: string, partitions: number): string => `
  CREATE TABLE ${table} (id uuid, "urlHash" uuid, PRIMARY KEY (id, "urlHash")) PARTITION BY HASH ("urlHash");
  ${Array.from(
    { length: partitions },
    (_, part) => `CREATE TABLE ${table}_p${part} PARTITION OF ${table}
      FOR VALUES WITH (MODULUS ${partitions}, REMAINDER ${part});`,
  ).join('\n')}`
