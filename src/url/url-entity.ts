import { Column, Entity, type EntityManager, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueTextEntity } from '../find-or-create/active-record'
import { findOrCreate } from '../find-or-create/find-or-create'
import { UniqueText } from '../typeorm/decorator'
import { formatUrl, parseUrl, pathComponent, pathComponentHash, urlParts } from './url-parts'

/**
 * A http or https URL, unique at any length, in table `urls`. Put it among the entities of your DataSource and refer to
 * it by foreign keys: its id never changes, and a stored URL is immutable.
 */
@Entity({ name: 'urls' })
@UniqueText({
  as: 'url',
  columns: ['path', { property: 'query', prefix: '?' }, { property: 'fragment', prefix: '#' }],
  scope: ['host', 'scheme', 'port'],
  immutable: true,
  indexName: 'url_unique_index',
  hidden: { hash: 'path_component_hash', number: 'hash_number', chained: 'hash_chained' },
  parse: urlParts,
})
export class Url extends UniqueTextEntity {
  /** A bigint, which the driver gives as a string. */
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string

  @Column({ type: 'varchar', length: 5 })
  scheme!: string

  @Column({ type: 'varchar', length: 256 })
  host!: string

  /** 0 for the scheme's default. */
  @Column({ type: 'integer', default: 0 })
  port!: number

  @Column({ type: 'text' })
  path!: string

  @Column({ type: 'text', nullable: true })
  query!: string | null

  @Column({ type: 'text', nullable: true })
  fragment!: string | null

  /**
   * Finds or creates the row of a URL.
   *
   * @param manager that of the caller's transaction. @default the entity's DataSource
   * @returns null for what is no http or https URL with a host, and for URLs with user information or port 0
   * @throws as `findOrCreate` does
   */
  static async parse(
    text: string | null | undefined,
    manager: EntityManager = this.getRepository().manager,
  ): Promise<Url | null> {
    const parts = parseUrl(text)
    return parts === null ? null : (await findOrCreate(manager, Url, parts)).entity
  }

  /** Path, `?query` and `#fragment`: the text that is hashed. */
  get pathComponent(): string {
    return pathComponent(this)
  }

  /** MD5 of `pathComponent`, 32 hex digits. */
  get pathComponentHash(): string {
    return pathComponentHash(this)
  }

  override toString(): string {
    return formatUrl(this)
  }
}
