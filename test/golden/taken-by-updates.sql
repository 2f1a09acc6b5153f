WITH i0 AS MATERIALIZED (
  SELECT i.ordinal, CASE WHEN i.g0 THEN i.c0 ELSE r."url"::pg_catalog.text END AS c0,
    i.k0 AS k0
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::boolean[]),
    pg_catalog.unnest($3::pg_catalog.text[]))
    WITH ORDINALITY AS i (c0, g0, k0, ordinal)
  JOIN "page" AS r ON r."id" OPERATOR(pg_catalog.=) i.k0
)
SELECT 0 AS wanted, i.ordinal,
  CASE WHEN i.ordinal OPERATOR(pg_catalog.>) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY i.c0 COLLATE pg_catalog."C") THEN 1 END AS repeated,
  h.deleted, h.k0 AS p0
FROM i0 AS i
CROSS JOIN LATERAL (SELECT i.c0 AS "url") AS n
LEFT JOIN LATERAL (
  SELECT t."id" AS k0, NULL::pg_catalog.int4 AS deleted
  FROM "page" AS t
  WHERE t."urlHash" OPERATOR(pg_catalog.=)
      pg_catalog.md5(pg_catalog.substr(n."url"::pg_catalog.text, 1, 1))::pg_catalog.uuid
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) n."url"::pg_catalog.text
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
    AND NOT EXISTS (
      SELECT FROM i0 AS e WHERE e.ordinal OPERATOR(pg_catalog.<=) i.ordinal AND e.k0 OPERATOR(pg_catalog.=) t."id")
  LIMIT 1
) AS h ON true
WHERE NOT (n."url" IS NULL);

WITH i0 AS MATERIALIZED (
  SELECT i.ordinal, CASE WHEN i.g0 THEN pg_catalog.round(i.c0::numeric, 2) ELSE r."site" END AS c0,
    CASE WHEN i.g1 THEN i.c1 ELSE r."path"::pg_catalog.text END AS c1,
    CASE WHEN i.g2 THEN i.c2 ELSE r."query"::pg_catalog.text END AS c2,
    i.k0 AS k0
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
    pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::boolean[]),
    pg_catalog.unnest($5::boolean[]), pg_catalog.unnest($6::boolean[]),
    pg_catalog.unnest($7::pg_catalog.text[]))
    WITH ORDINALITY AS i (c0, c1, c2, g0, g1, g2, k0, ordinal)
  JOIN "My ""Schema"""."page" AS r ON r."id" OPERATOR(pg_catalog.=) i.k0
)
SELECT 0 AS wanted, i.ordinal,
  CASE WHEN i.ordinal OPERATOR(pg_catalog.>) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY i.c0, i.c1 COLLATE pg_catalog."C", i.c2 COLLATE pg_catalog."C") THEN 1 END AS repeated,
  h.deleted, h.k0 AS p0
FROM i0 AS i
CROSS JOIN LATERAL (SELECT i.c0 AS "site", i.c1 AS "path", i.c2 AS "query") AS n
LEFT JOIN LATERAL (
  SELECT t."id" AS k0, NULL::pg_catalog.int4 AS deleted
  FROM "My ""Schema"""."page" AS t
  WHERE t."site" OPERATOR(pg_catalog.=) n."site"
    AND t."urlHash" OPERATOR(pg_catalog.=)
      pg_catalog.md5(pg_catalog.substr(coalesce(n."path"::pg_catalog.text, '') OPERATOR(pg_catalog.||)
    coalesce('?' OPERATOR(pg_catalog.||) n."query"::pg_catalog.text, ''), 1, 1))::pg_catalog.uuid
    AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) n."path"::pg_catalog.text
      OR t."path" IS NULL AND n."path" IS NULL)
    AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) n."query"::pg_catalog.text
      OR t."query" IS NULL AND n."query" IS NULL)
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
    AND NOT EXISTS (
      SELECT FROM i0 AS e WHERE e.ordinal OPERATOR(pg_catalog.<=) i.ordinal AND e.k0 OPERATOR(pg_catalog.=) t."id")
  LIMIT 1
) AS h ON true
WHERE NOT (n."path" IS NULL AND n."query" IS NULL);
