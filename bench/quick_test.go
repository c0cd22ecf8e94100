package main
import ("testing";"context";"fmt";"github.com/tidings-project/tidings/internal/localpg")
func TestQuick(t *testing.T){
 ctx:=context.Background(); server,err:=localpg.Start(ctx, localpg.Options{Settings: settings}); if err!=nil{t.Fatal(err)}; defer server.Stop(ctx)
 b:=&bench{server:server,figures:map[string][]float64{}}; defer b.close()
 pool,_,err:=b.database(ctx,"q",true); if err!=nil{t.Fatal(err)}; seedUsers(ctx,pool)
 r,err:=newRiver(ctx,b,"qr"); if err!=nil{t.Fatal(err)}
 q:=&queue{pool:pool}
 for i:=0;i<6;i++ { a,_:=q.settle(ctx,20000,false); c,_:=r.settle(ctx,20000); fmt.Printf("ours %.0f river %.0f ratio %.2f\n",a,c,a/c) }
}
