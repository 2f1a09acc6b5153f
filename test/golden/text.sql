
-- typeorm-unique-text guard: generated, do not edit; see maintainers/protocol.md of the repository.
-- It makes hashes, and gives number 0 in an empty chain.
-- {"protocol":1, "kind":"guard", "name":"url", "digest":"md5", "text":[{"name":"url","prefix":""}],
-- "normalizers":["custom@1"], "scope":["tenant"], "deleted":"deletedAt", "nullable":true,
-- "immutable":true, "maxChainLength":1000, "hash":"urlHash", "number":"urlHashNumber",
-- "chained":"urlHashChained", "index":"page url", "check":"page url check",
-- "triggers":["510a1e33","35711c80","41ca34d2","6d2d2b12","1a0c7f2e","92777b3e"]}
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
    AND OLD."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
    AND (OLD."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."url"::pg_catalog.text
      OR OLD."url" IS NULL AND NEW."url" IS NULL)
    AND (OLD."deletedAt" IS NULL OR NEW."deletedAt" IS NOT NULL) THEN
    NEW."urlHash" := OLD."urlHash";
    NEW."urlHashNumber" := CASE WHEN NEW."urlHashNumber" OPERATOR(pg_catalog.=) 0 THEN 0 ELSE OLD."urlHashNumber" END;
    NEW."urlHashChained" := OLD."urlHashChained" OR NEW."urlHashChained" IS TRUE;
    RETURN NEW;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE'
    AND NOT (OLD."url" IS NULL)
    AND (((OLD."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."url"::pg_catalog.text
      OR OLD."url" IS NULL AND NEW."url" IS NULL))
    IS NOT TRUE
      OR (OLD."tenant" OPERATOR(pg_catalog.=) NEW."tenant") IS NOT TRUE) THEN
    RAISE EXCEPTION USING ERRCODE = 'UT001', MESSAGE = 'the text is immutable',
      CONSTRAINT = 'page url', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF NEW."url" IS NULL THEN
    NEW."urlHash" := NULL;
    NEW."urlHashNumber" := 0;
    NEW."urlHashChained" := false;
    RETURN NEW;
  END IF;
  NEW."urlHash" := pg_catalog.md5(NEW."url"::pg_catalog.text)::pg_catalog.uuid;
  NEW."urlHashNumber" := -1;
  NEW."urlHashChained" := false;
  IF NEW."deletedAt" IS NOT NULL THEN
    NEW."urlHashNumber" := 0;
    RETURN NEW;
  END IF;
  IF plain THEN
    -- Of a text that stands at 0, the index raises the ordinary violation.
    SELECT t."urlHashNumber" OPERATOR(pg_catalog.=) 0
      AND (t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."url"::pg_catalog.text
      OR t."url" IS NULL AND NEW."url" IS NULL) INTO taken
      FROM ONLY "page" AS t
      WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
        AND t."urlHash" OPERATOR(pg_catalog.=) NEW."urlHash"
        AND t."deletedAt" IS NULL
      LIMIT 1;
    IF NOT FOUND OR taken AND TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
      NEW."urlHashNumber" := 0;
    END IF;
  END IF;
  RETURN NEW;
END

CREATE TRIGGER "unique_text_page__url_place_insert" BEFORE INSERT ON "page" FOR EACH ROW WHEN (NEW."urlHash" IS NULL
  OR (NEW."urlHashNumber" OPERATOR(pg_catalog.=) 0) IS NOT TRUE OR NEW."urlHashChained")
  EXECUTE FUNCTION "unique_text_page__url"()

CREATE TRIGGER "unique_text_page__url_place_update" BEFORE UPDATE OF "url", "tenant", "urlHash", "urlHashNumber",
  "urlHashChained", "deletedAt" ON "page" FOR EACH ROW
  WHEN (((OLD."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."url"::pg_catalog.text
      OR OLD."url" IS NULL AND NEW."url" IS NULL))
    IS NOT TRUE
  OR (OLD."tenant" OPERATOR(pg_catalog.=) NEW."tenant") IS NOT TRUE
  OR (OLD."urlHash" OPERATOR(pg_catalog.=) NEW."urlHash") IS NOT TRUE
  OR (OLD."urlHashNumber" OPERATOR(pg_catalog.=) NEW."urlHashNumber") IS NOT TRUE
  OR OLD."urlHashChained" AND NEW."urlHashChained" IS NOT TRUE
  OR OLD."deletedAt" IS NOT NULL AND NEW."deletedAt" IS NULL) EXECUTE FUNCTION "unique_text_page__url"()

CREATE TRIGGER "unique_text_page__url_rest" BEFORE INSERT OR UPDATE OF "url", "tenant", "urlHash", "urlHashNumber",
  "urlHashChained", "deletedAt" ON "page" FOR EACH ROW WHEN (NEW."urlHashNumber" OPERATOR(pg_catalog.<) 0)
  EXECUTE FUNCTION "unique_text_chain_v1"('unique_text_page__url_rest', '1', '1', 'page url', '1000')

CREATE TRIGGER "unique_text_page__url_settle_insert" AFTER INSERT ON "page" FOR EACH ROW
  WHEN (NEW."urlHashNumber" OPERATOR(pg_catalog.>) 0)
  EXECUTE FUNCTION "unique_text_chain_v1"('unique_text_page__url_rest', '1', '1', 'page url')

CREATE TRIGGER "unique_text_page__url_settle_update" AFTER UPDATE ON "page" FOR EACH ROW WHEN (OLD."urlHashChained"
  OR NEW."urlHashChained" OR NEW."urlHashNumber" OPERATOR(pg_catalog.>) 0)
  EXECUTE FUNCTION "unique_text_chain_v1"('unique_text_page__url_rest', '1', '1', 'page url')

CREATE TRIGGER "unique_text_page__url_settle_delete" AFTER DELETE ON "page" FOR EACH ROW WHEN (OLD."urlHashChained")
  EXECUTE FUNCTION "unique_text_chain_v1"('unique_text_page__url_rest', '1', '1', 'page url')
