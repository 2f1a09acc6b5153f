UPDATE "page" AS t SET "deletedAt" = NULL
WHERE t."urlHash" = $2
    AND t."url"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $1::pg_catalog.text
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
    AND t."deletedAt" IS NOT NULL
RETURNING NULL::bool AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN t."url"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $1::pg_catalog.text
    THEN pg_catalog.json_build_array(t."url")::pg_catalog.text END AS other_texts, t."id" AS s0, t."title" AS s2;

UPDATE "My ""Schema"""."page" AS t SET "deleted at" = NULL, "version" = t."version" + 1, "updatedAt" = CURRENT_TIMESTAMP
WHERE t."site" OPERATOR(pg_catalog.=) pg_catalog.round($1::numeric, 2)
    AND t."urlHash" = $4
    AND t."path"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $2::pg_catalog.text
    AND t."query"::pg_catalog.text COLLATE "C"
        IS NOT DISTINCT FROM $3::pg_catalog.text
    AND t."urlHashNumber" BETWEEN -2147483648 AND 2147483647
    AND t."deleted at" IS NOT NULL
RETURNING NULL::bool AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN t."path"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $2::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $3::pg_catalog.text
    THEN pg_catalog.json_build_array(t."path", t."query")::pg_catalog.text END AS other_texts, t."id" AS s0;
