import { type BeforeQueryEvent, EventSubscriber, type EntitySubscriberInterface } from 'typeorm'

/** What a test does at the event; `hooks` holds it. */
export type QueryHook = (event: BeforeQueryEvent) => Promise<void>

export const hooks: { before: QueryHook | undefined; after: QueryHook | undefined } = {
  before: undefined,
  after: undefined,
}

/**
 * TypeORM notifies subscribers in the order in which it met them. Load this by `vi.hoisted`, before the package, so that
 * the package's own subscriber is the later one.
 */
@EventSubscriber()
export class QuerySubscriber implements EntitySubscriberInterface {
  async beforeQuery(event: BeforeQueryEvent): Promise<void> {
    await hooks.before?.(event)
  }

  async afterQuery(event: BeforeQueryEvent): Promise<void> {
    await hooks.after?.(event)
  }
}
