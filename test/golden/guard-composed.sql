
-- typeorm-unique-text guard: generated, do not edit; see maintainers/protocol.md of the repository.
-- It makes hashes, and gives number 0 in an empty chain.
-- {"protocol":1, "kind":"guard", "name":"url", "digest":"md5",
-- "text":[{"name":"path","prefix":""},{"name":"query","prefix":"?"},{"name":"fragment","prefix":"#"}],
-- "normalizers":["custom@1"], "scope":["host","scheme","port"], "maxChainLength":1000,
-- "hash":"path_component_hash", "number":"hash_number", "chained":"hash_chained", "index":"page url",
-- "check":"page url check",
-- "triggers":["7ccf8501","b6f995eb","45c41720","9e68917f","cf3241e9","752c8dc3"]}
DECLARE
  plain boolean := TG_TABLE_NAME OPERATOR(pg_catalog.=) 'page' AND pg_catalog.pg_table_is_visible(TG_RELID);
  taken boolean;
BEGIN
  IF plain THEN
  ELSIF NOT EXISTS (SELECT FROM pg_catalog.pg_type AS y
    WHERE y.oid OPERATOR(pg_catalog.=) pg_catalog.format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME)::pg_catalog.regtype
      AND pg_catalog.pg_get_userbyid(y.typowner) OPERATOR(pg_catalog.=) CURRENT_USER) THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE =
        'the guard does not belong to the owner of the table: a new migration creates it again',
      CONSTRAINT = 'page url', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE'
    AND OLD."host" OPERATOR(pg_catalog.=) NEW."host"
    AND OLD."scheme" OPERATOR(pg_catalog.=) NEW."scheme"
    AND OLD."port" OPERATOR(pg_catalog.=) NEW."port"
    AND (OLD."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."path"::pg_catalog.text
      OR OLD."path" IS NULL AND NEW."path" IS NULL)
    AND (OLD."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."query"::pg_catalog.text
      OR OLD."query" IS NULL AND NEW."query" IS NULL)
    AND (OLD."fragment"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."fragment"::pg_catalog.text
      OR OLD."fragment" IS NULL AND NEW."fragment" IS NULL) THEN
    NEW."path_component_hash" := OLD."path_component_hash";
    NEW."hash_number" := CASE WHEN NEW."hash_number" OPERATOR(pg_catalog.=) 0 THEN 0 ELSE OLD."hash_number" END;
    NEW."hash_chained" := OLD."hash_chained" OR NEW."hash_chained" IS TRUE;
    RETURN NEW;
  END IF;
  NEW."path_component_hash" := pg_catalog.md5(coalesce(NEW."path"::pg_catalog.text, '') OPERATOR(pg_catalog.||)
    coalesce('?' OPERATOR(pg_catalog.||) NEW."query"::pg_catalog.text, '') OPERATOR(pg_catalog.||)
    coalesce('#' OPERATOR(pg_catalog.||) NEW."fragment"::pg_catalog.text, ''))::pg_catalog.uuid;
  NEW."hash_number" := -1;
  NEW."hash_chained" := false;
  IF plain THEN
    -- Of a text that stands at 0, the index raises the ordinary violation.
    SELECT t."hash_number" OPERATOR(pg_catalog.=) 0
      AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."path"::pg_catalog.text
      OR t."path" IS NULL AND NEW."path" IS NULL)
      AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."query"::pg_catalog.text
      OR t."query" IS NULL AND NEW."query" IS NULL)
      AND (t."fragment"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."fragment"::pg_catalog.text
      OR t."fragment" IS NULL AND NEW."fragment" IS NULL) INTO taken
      FROM ONLY "page" AS t
      WHERE t."host" OPERATOR(pg_catalog.=) NEW."host"
        AND t."scheme" OPERATOR(pg_catalog.=) NEW."scheme"
        AND t."port" OPERATOR(pg_catalog.=) NEW."port"
        AND t."path_component_hash" OPERATOR(pg_catalog.=) NEW."path_component_hash"
      LIMIT 1;
    IF NOT FOUND OR taken AND TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
      NEW."hash_number" := 0;
    END IF;
  END IF;
  RETURN NEW;
END

CREATE TRIGGER "unique_text_page__url_place_insert" BEFORE INSERT ON "page" FOR EACH ROW
  WHEN (NEW."path_component_hash" IS NULL OR (NEW."hash_number" OPERATOR(pg_catalog.=) 0) IS NOT TRUE
  OR NEW."hash_chained") EXECUTE FUNCTION "unique_text_page__url"()

CREATE TRIGGER "unique_text_page__url_place_update" BEFORE UPDATE OF "path", "query", "fragment", "host", "scheme",
  "port", "path_component_hash", "hash_number", "hash_chained" ON "page" FOR EACH ROW
  WHEN (((OLD."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."path"::pg_catalog.text
      OR OLD."path" IS NULL AND NEW."path" IS NULL))
    IS NOT TRUE
  OR ((OLD."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."query"::pg_catalog.text
      OR OLD."query" IS NULL AND NEW."query" IS NULL))
    IS NOT TRUE
  OR ((OLD."fragment"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."fragment"::pg_catalog.text
      OR OLD."fragment" IS NULL AND NEW."fragment" IS NULL))
    IS NOT TRUE
  OR (OLD."host" OPERATOR(pg_catalog.=) NEW."host") IS NOT TRUE
  OR (OLD."scheme" OPERATOR(pg_catalog.=) NEW."scheme") IS NOT TRUE
  OR (OLD."port" OPERATOR(pg_catalog.=) NEW."port") IS NOT TRUE
  OR (OLD."path_component_hash" OPERATOR(pg_catalog.=) NEW."path_component_hash") IS NOT TRUE
  OR (OLD."hash_number" OPERATOR(pg_catalog.=) NEW."hash_number") IS NOT TRUE
  OR OLD."hash_chained" AND NEW."hash_chained" IS NOT TRUE) EXECUTE FUNCTION "unique_text_page__url"()

CREATE TRIGGER "unique_text_page__url_rest" BEFORE INSERT OR UPDATE OF "path", "query", "fragment", "host", "scheme",
  "port", "path_component_hash", "hash_number", "hash_chained" ON "page" FOR EACH ROW
  WHEN (NEW."hash_number" OPERATOR(pg_catalog.<) 0)
  EXECUTE FUNCTION "unique_text_place_v1"('unique_text_page__url_rest', '3', '3', 'page url', '1000')

CREATE TRIGGER "unique_text_page__url_settle_insert" AFTER INSERT ON "page" FOR EACH ROW
  WHEN (NEW."hash_number" OPERATOR(pg_catalog.>) 0)
  EXECUTE FUNCTION "unique_text_settle_v1"('unique_text_page__url_rest', '3', '3', 'page url', '1000')

CREATE TRIGGER "unique_text_page__url_settle_update" AFTER UPDATE ON "page" FOR EACH ROW WHEN (OLD."hash_chained"
  OR NEW."hash_chained" OR NEW."hash_number" OPERATOR(pg_catalog.>) 0)
  EXECUTE FUNCTION "unique_text_settle_v1"('unique_text_page__url_rest', '3', '3', 'page url', '1000')

CREATE TRIGGER "unique_text_page__url_settle_delete" AFTER DELETE ON "page" FOR EACH ROW WHEN (OLD."hash_chained")
  EXECUTE FUNCTION "unique_text_settle_v1"('unique_text_page__url_rest', '3', '3', 'page url', '1000')
