import {
  Column,
  type DataSource,
  Entity,
  type EntityManager,
  ManyToOne,
  PrimaryGeneratedColumn,
  type QueryRunner,
  Repository,
} from 'typeorm'
import { expectTypeOf, test } from 'vitest'
import {
  type ByOptions,
  deleteByText,
  findOneByText,
  findOrCreate,
  type FindOrCreateResult,
  firstFreeText,
  insertOrFail,
  insertOrNull,
  TextTakenError,
  UniqueText,
  UniqueTextEntity,
  uniqueTextMethods,
  updateOrFail,
  upsertByText,
} from '../../src'
import { rename, UniqueName } from '../../src/names'
import { once } from '../../src/once'
import { findOrCreateStream } from '../../src/stream'

// Nothing here runs: the compiler checks it (`npm run typecheck`). No service casts, and none uses `any`.

@Entity()
class Tenant {
  @PrimaryGeneratedColumn() id!: number
  @UniqueName({ namespace: 'handle' }) handle!: string
}

@Entity()
class Tag extends UniqueTextEntity {
  @PrimaryGeneratedColumn() id!: number
  @UniqueText() name!: string
}

@Entity()
class Page {
  @PrimaryGeneratedColumn() id!: number
  @ManyToOne(() => Tenant, { nullable: false }) tenant!: Tenant
  @UniqueText({ scope: ['tenant'] }) url!: string
  @UniqueText({ scope: ['tenant'], nullable: true }) slug!: string | null
  @Column({ type: 'text', nullable: true }) title!: string | null
  @Column({ type: 'integer', default: 0 }) visits!: number
}

/** As Nest injects it with `@InjectRepository(Tag)`. */
class TagService {
  constructor(private readonly repository: Repository<Tag>) {}

  private readonly tags = () => this.repository.extend(uniqueTextMethods)

  async create(dto: { readonly name: string }): Promise<Tag> {
    return await this.tags().insertOrFail({ name: dto.name })
  }

  async findOrCreateAll(names: readonly string[]): Promise<Tag[]> {
    const results = await this.tags().findOrCreateMany(names.map((name) => ({ name })))
    return results.flatMap((result) => ('error' in result ? [] : [result.entity]))
  }

  async rename(id: number, name: string): Promise<{ tag: Tag } | { holder: unknown }> {
    try {
      return { tag: await this.tags().updateOrFail(id, { name }) }
    } catch (error) {
      if (error instanceof TextTakenError) return { holder: error.taken[0]?.id }
      throw error
    }
  }

  async swap(first: Tag, second: Tag): Promise<Tag[]> {
    const changes = [
      { id: first.id, name: second.name },
      { id: second.id, name: first.name },
    ]
    await Tag.updateOrFail(changes)
    return await this.tags().updateOrFail(changes)
  }
}

/** Shared by the services of several entities, each with a text `name`. */
abstract class NamedRepository<
  Named extends UniqueTextEntity & { id: number; name: string },
> extends Repository<Named> {
  abstract named(name: string): Named

  async obtain(name: string, options?: ByOptions<Named>): Promise<FindOrCreateResult<Named>> {
    return await findOrCreate(this.manager, this.target, this.named(name), options)
  }

  async lookUp(name: string): Promise<Named | null> {
    return await findOneByText(this.manager, this.target, this.named(name))
  }

  async import(names: readonly string[]): Promise<number> {
    const results = await upsertByText<Named>(
      this.manager,
      this.target,
      names.map((name) => this.named(name)),
    )
    return results.filter((result) => 'created' in result && result.created).length
  }
}

class TagRepository extends NamedRepository<Tag> {
  named(name: string): Tag {
    return this.create({ name })
  }
}

/** Every call has the tenant, by its id or as an entity. */
class PageService {
  constructor(
    private readonly manager: EntityManager,
    private readonly tenant: Tenant,
  ) {}

  async add(url: string, title?: string): Promise<FindOrCreateResult<Page>> {
    const values = { tenant: this.tenant, url, ...(title === undefined ? {} : { title }) }
    return await findOrCreate(this.manager, Page, values, { by: 'url', create: { visits: 1 } })
  }

  async visit(url: string): Promise<number> {
    const row = { tenant: { id: this.tenant.id }, url, visits: 1 }
    const update = { visits: ({ stored }: { stored: { visits: string } }) => `${stored.visits} + 1` }
    return (await upsertByText(this.manager, Page, row, { by: 'url', update })).entity.visits
  }

  async addWithSlug(url: string, wanted: string): Promise<Page | null> {
    const { tenant } = this
    const slugs = [wanted, `${wanted}-2`].map((slug) => ({ tenant, slug }))
    const free = await firstFreeText(this.manager, Page, slugs, { by: 'slug' })
    return free && (await insertOrNull(this.manager, Page, { ...free, tenant, url }))
  }

  async remove(url: string): Promise<boolean> {
    return await deleteByText(this.manager, Page, { tenant: this.tenant, url }, { by: 'url', withDeleted: true })
  }
}

/** One transaction for everything, and one answer for each token. */
class SignUpService {
  constructor(private readonly dataSource: DataSource) {}

  async signUp(token: string, handle: string, urls: readonly string[]): Promise<{ id: number; pages: number }> {
    const work = async (manager: EntityManager) => {
      const tenant = await insertOrFail(manager, Tenant, { handle })
      const pages = await insertOrFail(
        manager,
        Page,
        urls.map((url) => ({ tenant, url })),
      )
      return { id: tenant.id, pages: pages.length }
    }
    const { answer } = await once(this.dataSource.manager, token, work, { request: { handle, urls }, expires: '1 day' })
    return answer
  }

  async move(id: number, handle: string, page: Page, queryRunner?: QueryRunner): Promise<readonly [Page, Tenant]> {
    const change = async (manager: EntityManager) => {
      const [moved, tenant] = await updateOrFail(manager, [
        [Page, page.id, { slug: null, title: () => 'upper(title)' }],
        [Tenant, { id }, { handle }],
      ])
      await rename(manager, Tenant, tenant.id, { handle: `${handle}-2` })
      return [moved, tenant] as const
    }
    return queryRunner ? await change(queryRunner.manager) : await this.dataSource.transaction('SERIALIZABLE', change)
  }
}

/** An endless source in bounded memory, with what is rejected. */
class ImportService {
  constructor(private readonly dataSource: DataSource) {}

  async import(tenant: number, lines: AsyncIterable<string>, signal?: AbortSignal) {
    const counts = { created: 0, found: 0 }
    const rejected: { line: number; code: string }[] = []
    const rows = async function* () {
      for await (const url of lines) yield { tenant: { id: tenant }, url }
    }
    const results = findOrCreateStream(this.dataSource, Page, rows(), { by: 'url', signal, window: 10_000 })
    let line = 0
    for await (const result of results) {
      line++
      if ('error' in result) rejected.push({ line, code: 'code' in result.error ? result.error.code : 'none' })
      else counts[result.created ? 'created' : 'found']++
    }
    return { ...counts, rejected }
  }
}

test('five services compile without a cast, and their results have the types of the entities', () => {
  expectTypeOf<TagService['swap']>().returns.resolves.toEqualTypeOf<Tag[]>()
  expectTypeOf<TagRepository['obtain']>().returns.resolves.toEqualTypeOf<FindOrCreateResult<Tag>>()
  expectTypeOf<PageService['visit']>().returns.resolves.toEqualTypeOf<number>()
  expectTypeOf<SignUpService['move']>().returns.resolves.toEqualTypeOf<readonly [Page, Tenant]>()
  expectTypeOf<ImportService['import']>().returns.resolves.toEqualTypeOf<{
    rejected: { line: number; code: string }[]
    created: number
    found: number
  }>()
})
